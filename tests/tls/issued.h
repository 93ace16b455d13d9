// Certificates and keys made for a test, as PEM text. What cannot be made ends the process.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::tests {

struct Issued {
  std::string certificate;  // PEM
  std::string key;
};

struct IssueOptions {
  std::string common_name = "test";
  std::vector<std::string> names = {"localhost"};  // DNS names
  std::vector<std::string> addresses = {"127.0.0.1"};
  int64_t begins_in_seconds = -3600;
  int64_t ends_in_seconds = 86400;
  int rsa_bits = 0;  // 0: a key of P-256
};

Issued IssueAuthority(const std::string& common_name = "test authority");
// Signed by `authority`.
Issued Issue(const Issued& authority, const IssueOptions& options = {});
// The key with a passphrase.
std::string Encrypted(const std::string& key, const std::string& passphrase);

}  // namespace tessera::tests
