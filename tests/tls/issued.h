// Certificates and keys made for a test, as PEM text. What cannot be made ends the process.
// Thread rule: pure functions.
#pragma once

#include <string>

#include "tls/issue.h"

namespace tessera::tests {

using tessera::Issued;
using tessera::IssueOptions;

// A day's certificate for localhost and 127.0.0.1.
inline IssueOptions ForLocalhost() {
  return {.common_name = "test", .names = {"localhost"}, .addresses = {"127.0.0.1"}};
}

Issued IssueAuthority(const std::string& common_name = "test authority");
// Signed by `authority`.
Issued Issue(const Issued& authority, const IssueOptions& options = ForLocalhost());
// The key with a passphrase.
std::string Encrypted(const std::string& key, const std::string& passphrase);

}  // namespace tessera::tests
