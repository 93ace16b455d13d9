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

// Whom a certificate says that it is of, with '?' for characters that are not printed.
struct CertificateOwner {
  std::string common_name;         // empty: it has none
  std::string issuer;              // the common name of who signed it
  std::vector<std::string> names;  // DNS names and addresses
};
CertificateOwner OwnerOf(const X509& certificate);

// In their order; what is no certificate is passed over, and ends at the first that is malformed.
std::vector<X509Handle> PemCertificates(const std::string& text);
// The first private key. INVALID_ARGUMENT: none, or one with a passphrase.
absl::StatusOr<KeyHandle> PemKey(const std::string& text);

}  // namespace tessera
