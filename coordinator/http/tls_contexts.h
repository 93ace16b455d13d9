// TLS of the HTTP port: one context for each change of the certificates.
// Thread rule: thread-safe.
#pragma once

#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "tls/certificates.h"
#include "tls/encryptable_stream.h"

namespace tessera::coordinator {

class TlsContexts {
 public:
  // `watch` outlives this. INVALID_ARGUMENT: OpenSSL refuses the certificates.
  static absl::StatusOr<std::unique_ptr<TlsContexts>> Start(CertificateWatch& watch);
  // For the next connection.
  TlsContext now() const;

 private:
  struct Current {
    std::mutex mutex;
    TlsContext context;
  };
  // The watch may call once more when this is gone.
  const std::shared_ptr<Current> current_ = std::make_shared<Current>();
};

}  // namespace tessera::coordinator
