// The two ends of getting a link: a listener that accepts connections, and connecting to one.
//
// TCP sockets send without delay (TCP_NODELAY), over IPv4 or IPv6. A Unix socket is a file of mode
// 0600; one that a dead process left behind is replaced, and the file goes with the listener.
// Thread rule: a listener's functions may be called from any thread. Every wait is bounded, except
// that a host's name is looked up within the resolver's own limits.
// Errors: UNAVAILABLE (refused, unreachable, no such file), DEADLINE_EXCEEDED, ALREADY_EXISTS
// (somebody listens there); all name the address.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/links/file_descriptor.h"
#include "kernels/links/link.h"
#include "kernels/links/link_address.h"
#include "kernels/links/link_tls.h"

namespace tessera::kernels {

class LinkListener {
 public:
  // TCP connections are inside TLS where there is `tls`, with what it has when they are accepted.
  static absl::StatusOr<std::unique_ptr<LinkListener>> Listen(
      const LinkAddress& address, std::shared_ptr<const LinkTlsSource> tls = nullptr);
  // No Accept may be running.
  ~LinkListener();
  LinkListener(const LinkListener&) = delete;
  LinkListener& operator=(const LinkListener&) = delete;

  // The next connection. Several threads may wait.
  absl::StatusOr<std::unique_ptr<Link>> Accept(double timeout_seconds);
  // With the port that the system chose.
  const LinkAddress& address() const { return address_; }
  // For poll(2): readable once a connection waits.
  int socket() const { return socket_.get(); }

 private:
  LinkListener(FileDescriptor socket, LinkAddress address,
               std::shared_ptr<const LinkTlsSource> tls);

  const FileDescriptor socket_;
  const LinkAddress address_;
  const std::shared_ptr<const LinkTlsSource> tls_;  // null over a Unix socket
};

// Over TCP inside TLS where there is `tls`; its handshake is part of the first frame.
absl::StatusOr<std::unique_ptr<Link>> ConnectLink(const LinkAddress& address,
                                                  double timeout_seconds,
                                                  const LinkTlsSource* tls = nullptr);

}  // namespace tessera::kernels
