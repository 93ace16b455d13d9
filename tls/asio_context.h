// OpenSSL's contexts for Asio's streams: TLS 1.2 and later, HTTP/1.1 by ALPN.
// Thread rule: pure functions.
#pragma once

#include "absl/status/statusor.h"
#include "tls/certificates.h"
#include "tls/client_tls.h"
#include "tls/encryptable_stream.h"

namespace tessera {

// INVALID_ARGUMENT with OpenSSL's reason, both.
absl::StatusOr<TlsContext> ServerContext(const Certificates& certificates);
absl::StatusOr<TlsContext> ClientContext(const ClientTls& client);

// For a client's stream, before its handshake: the listener's certificate must have `name`, a DNS
// name or an address. False: OpenSSL takes no such name.
bool ExpectName(EncryptableStream& stream, const std::string& name);

}  // namespace tessera
