#include "coordinator/http/tls_contexts.h"

#include <string>
#include <utility>

#include "third_party/spdlog/log.h"
#include "tls/asio_context.h"

namespace tessera::coordinator {

absl::StatusOr<std::unique_ptr<TlsContexts>> TlsContexts::Start(CertificateWatch& watch) {
  auto contexts = std::make_unique<TlsContexts>();
  absl::StatusOr<TlsContext> first = ServerContext(*watch.now());
  if (!first.ok()) return first.status();
  contexts->current_->context = *std::move(first);
  watch.OnChange([current = contexts->current_](const std::shared_ptr<const Certificates>& now) {
    absl::StatusOr<TlsContext> next = ServerContext(*now);
    if (!next.ok()) {
      Logger("tls").warn("{}; the HTTP port keeps the one of before",
                         std::string(next.status().message()));
      return;
    }
    std::lock_guard lock(current->mutex);
    current->context = *std::move(next);
  });
  return contexts;
}

TlsContext TlsContexts::now() const {
  std::lock_guard lock(current_->mutex);
  return current_->context;
}

}  // namespace tessera::coordinator
