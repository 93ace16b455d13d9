// Listens at several addresses and hands on every connection that passed its handshake.
//
// One thread does all handshakes side by side: it answers frames as they come and waits for
// nobody. Strangers who connect and say nothing cost a socket each, for a bounded time and in a
// bounded number. Where a bound is reached, a new connection takes the place of the one that got
// least far, the oldest first, if that had its chance to speak (kSpeakSeconds). A peer that the
// owner expects is never put out for others.
// Thread rule: any thread. The functions of LinkServerOptions are called on the server's thread,
// one at a time, and must not wait. Stop, and so the destructor, waits for the one under way;
// handshakes that are not over are dropped.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/links/deadline.h"
#include "kernels/links/file_descriptor.h"
#include "kernels/links/handshake.h"
#include "kernels/links/link_socket.h"
#include "kernels/links/link_tls.h"

namespace tessera::kernels {

// Whoever dials a link says hello at once.
inline constexpr double kSpeakSeconds = 0.1;

struct AcceptedLink {
  std::unique_ptr<Link> link;
  std::string identity;
};

struct LinkServerOptions {
  // kernels/links/link_address.h: "127.0.0.1:0", "unix:/run/user/0/tessera-1.sock".
  std::vector<std::string> listen = {};
  HandshakeOptions handshake = {};  // its timeout_seconds bounds each connection's
  // TCP connections are inside TLS; null: plain.
  std::shared_ptr<const LinkTlsSource> tls = nullptr;
  // Whether somebody waits for the peer that claims this identity, which it has not proved yet.
  // Empty: for nobody.
  std::function<bool(std::string_view claimed_identity)> expects = {};
  // Handshakes at a time, over all addresses, and of those from one: an IP address, or, over a Unix
  // socket, a process.
  size_t max_handshakes = 512;
  size_t max_handshakes_per_peer = 128;
  std::function<void(AcceptedLink)> on_link = {};
  std::function<void(const absl::Status&)> on_refused = {};  // an error that names the peer
};

class LinkServer {
 public:
  // Errors name the address.
  static absl::StatusOr<std::unique_ptr<LinkServer>> Start(LinkServerOptions options);
  ~LinkServer() { Stop(); }

  // In the order of LinkServerOptions::listen, with the ports that the system chose.
  std::vector<std::string> addresses() const;
  void Stop();

 private:
  struct Pending {
    Pending(std::unique_ptr<Link> connection, const HandshakeOptions& options);

    std::unique_ptr<Link> link;
    ServerHandshake handshake;
    std::string host;  // of the peer, without its port
    Deadline may_be_put_out, deadline;
    bool expected = false;
  };
  using PendingMap = std::map<uint64_t, std::unique_ptr<Pending>>;  // by age

  explicit LinkServer(LinkServerOptions options) : options_(std::move(options)) {}
  absl::Status Watch(int socket, uint32_t events, uint64_t id) const;
  void Serve();
  // False: the server ends.
  bool ServeEvents();
  void Accept(LinkListener& listener);
  // Whether one more connection of the host may begin.
  bool MakeRoom(const std::string& host);
  void Advance(uint64_t id);
  void EndLate();
  void Refuse(PendingMap::iterator pending, const absl::Status& reason);

  const LinkServerOptions options_;
  FileDescriptor epoll_, stop_;
  std::vector<std::unique_ptr<LinkListener>> listeners_;
  std::thread thread_;

  // The server's thread alone uses these.
  PendingMap pending_;
  uint64_t next_id_ = 0;
};

}  // namespace tessera::kernels
