#include "kernels/links/link_acceptor.h"

#include <utility>

#include "kernels/links/deadline.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels {

LinkAcceptor::LinkAcceptor(std::unique_ptr<LinkListener> listener, HandshakeOptions options,
                           std::function<void(const absl::Status&)> on_refused)
    : listener_(std::move(listener)),
      options_(std::move(options)),
      on_refused_(std::move(on_refused)) {}

absl::StatusOr<AcceptedLink> LinkAcceptor::Accept(double timeout_seconds) {
  const Deadline deadline = DeadlineAfter(timeout_seconds);
  while (true) {
    absl::StatusOr<std::unique_ptr<Link>> link = listener_->Accept(SecondsUntil(deadline));
    if (!link.ok()) return link.status();
    absl::StatusOr<std::string> identity = HandshakeAsServer(**link, options_);
    if (identity.ok()) {
      return AcceptedLink{.link = *std::move(link), .identity = *std::move(identity)};
    }
    refused_.fetch_add(1, std::memory_order_relaxed);
    if (on_refused_) on_refused_(identity.status());
    if (SecondsUntil(deadline) == 0) {
      return absl::DeadlineExceededError(
          StrCat("link at ", address().ToString(),
                 ": no connection passed the handshake before the deadline"));
    }
  }
}

}  // namespace tessera::kernels
