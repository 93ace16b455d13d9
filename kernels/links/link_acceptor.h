// A listener that gives out links only after their handshake, and counts what it refused.
//
// Thread rule: any thread; each thread that waits in Accept serves one connection at a time, so a
// stranger that says nothing costs its thread one handshake's timeout.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/links/handshake.h"
#include "kernels/links/link_socket.h"

namespace tessera::kernels {

struct AcceptedLink {
  std::unique_ptr<Link> link;
  std::string identity;
};

class LinkAcceptor {
 public:
  // `on_refused`, for logs, is called by the accepting thread with an error that names the peer.
  LinkAcceptor(std::unique_ptr<LinkListener> listener, HandshakeOptions options,
               std::function<void(const absl::Status&)> on_refused = {});

  // The next connection that passes its handshake. Waits timeout_seconds for connections, and for
  // a handshake that began then. Errors are the listener's.
  absl::StatusOr<AcceptedLink> Accept(double timeout_seconds);
  // Ends every Accept; a handshake that is running ends first.
  void Close() { listener_->Close(); }
  const LinkAddress& address() const { return listener_->address(); }
  // Connections that failed their handshake.
  int64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  const std::unique_ptr<LinkListener> listener_;
  const HandshakeOptions options_;
  const std::function<void(const absl::Status&)> on_refused_;
  std::atomic<int64_t> refused_{0};
};

}  // namespace tessera::kernels
