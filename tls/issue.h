// Makes certificates: an authority, and what it signs. Keys are of P-256 unless asked otherwise.
// Thread rule: pure functions but for random numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera {

struct Issued {
  std::string certificate;  // PEM
  std::string key;          // PEM, without a passphrase
};

struct IssueOptions {
  std::string common_name;
  std::vector<std::string> names = {};      // DNS names
  std::vector<std::string> addresses = {};  // IP addresses
  int64_t begins_in_seconds = -3600;        // clocks differ
  int64_t ends_in_seconds = 86400;
  int rsa_bits = 0;  // 0: a key of P-256
};

// May sign certificates, but no further authorities. INTERNAL: OpenSSL failed.
absl::StatusOr<Issued> MakeAuthority(const IssueOptions& options);
// Signed by `authority`, for listeners and for those who connect. INVALID_ARGUMENT: `authority` is
// no pair of certificate and key, or a name is none.
absl::StatusOr<Issued> SignCertificate(const Issued& authority, const IssueOptions& options);

}  // namespace tessera
