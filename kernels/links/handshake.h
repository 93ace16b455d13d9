// What two processes say before a link carries anything else: each proves that it has the shared
// token, without sending it, and says who it is.
//
//   client: hello {nonce, identity}      server: hello {nonce, identity}
//   client: proof {MAC}                  server: accept {MAC}, or refusal {code, reason}
//   client: ready, or refusal
//
// A MAC is HMAC-SHA256 with the token over the side's role, both nonces and both identities. An
// empty token proves nothing, but both sides must then have an empty one. The stranger proves
// itself first: a server says no more than its identity to one that can't. Identities are opaque
// here; they travel in clear.
//
// Thread rule: as Link. Bounds: timeout_seconds for the whole handshake, kMaxIdentityBytes.
// Errors: any failure ends the link. PERMISSION_DENIED: the token differs. What `verify` returns
// is the other side's error too, with its code. Errors name the peer.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/links/link.h"

namespace tessera::kernels {

inline constexpr int64_t kMaxIdentityBytes = 4096;

struct HandshakeOptions {
  std::string token = {};
  // At most kMaxIdentityBytes.
  std::string identity = {};
  // Whether a peer that proved the token is welcome; its error is sent to the peer. Empty: yes.
  std::function<absl::Status(std::string_view peer_identity)> verify = {};
  double timeout_seconds = 5;
};

// Return the peer's identity; the link is then ready for any frames.
absl::StatusOr<std::string> HandshakeAsClient(Link& link, const HandshakeOptions& options);
absl::StatusOr<std::string> HandshakeAsServer(Link& link, const HandshakeOptions& options);

// HandshakeAsServer for an owner that must not wait: it answers frames as they come. The owner
// bounds the time. One thread at a time.
class ServerHandshake {
 public:
  // Both must outlive it.
  ServerHandshake(Link& link, const HandshakeOptions& options);
  ~ServerHandshake();
  ServerHandshake(const ServerHandshake&) = delete;
  ServerHandshake& operator=(const ServerHandshake&) = delete;

  // Answers every whole frame that lies in the link's socket. The outcome as HandshakeAsServer's;
  // nullopt: the peer has more to say. Must not be called again after an outcome.
  std::optional<absl::StatusOr<std::string>> Advance();
  // Who the peer says that it is, which it may not have proved; null before its hello.
  const std::string* claimed_identity() const;

 private:
  class Steps;
  Link& link_;
  const std::unique_ptr<Steps> steps_;
};

}  // namespace tessera::kernels
