// PEM text to OpenSSL's objects. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "third_party/openssl/handles.h"

namespace tessera {

inline constexpr int64_t kMaxPemBytes = 1 << 20;  // of a file
inline constexpr char kNoCertificate[] =
    "it holds no certificate: PEM is expected, beginning with -----BEGIN CERTIFICATE-----";

// In their order; what is no certificate is passed over, and ends at the first that is malformed.
std::vector<X509Handle> PemCertificates(const std::string& text);
// The first private key. INVALID_ARGUMENT: none, or one with a passphrase.
absl::StatusOr<KeyHandle> PemKey(const std::string& text);

}  // namespace tessera
