// Listens at several addresses and hands on every connection that passed its handshake.
//
// Each address has threads of its own that do handshakes side by side, so that strangers who
// connect and say nothing, as many as there are threads less one, hold nobody up.
// Thread rule: any thread. on_link and on_refused are called on the server's threads, several at
// once. Stop, and so the destructor, waits for calls and handshakes under way.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/links/link_acceptor.h"

namespace tessera::kernels {

struct LinkServerOptions {
  // kernels/links/link_address.h: "127.0.0.1:0", "unix:/run/user/0/tessera-1.sock".
  std::vector<std::string> listen;
  HandshakeOptions handshake;
  int threads_per_address = 16;
  std::function<void(AcceptedLink)> on_link;
  std::function<void(const absl::Status&)> on_refused;  // an error that names the peer
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
  explicit LinkServer(std::function<void(AcceptedLink)> on_link) : on_link_(std::move(on_link)) {}
  void AcceptLoop(LinkAcceptor* acceptor);

  const std::function<void(AcceptedLink)> on_link_;
  std::vector<std::unique_ptr<LinkAcceptor>> acceptors_;
  std::vector<std::thread> threads_;
  std::atomic<bool> stopping_{false};
};

}  // namespace tessera::kernels
