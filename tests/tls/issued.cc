#include "tests/tls/issued.h"

#include <openssl/pem.h>

#include <cstdlib>

#include "third_party/openssl/handles.h"
#include "tls/pem.h"

namespace tessera::tests {
namespace {

void Need(bool made) {
  if (!made) std::abort();
}

}  // namespace

Issued IssueAuthority(const std::string& common_name) {
  const auto made = MakeAuthority(
      {.common_name = common_name, .begins_in_seconds = -7200, .ends_in_seconds = 7 * 86400});
  Need(made.ok());
  return *made;
}

Issued Issue(const Issued& authority, const IssueOptions& options) {
  const auto made = SignCertificate(authority, options);
  Need(made.ok());
  return *made;
}

std::string Encrypted(const std::string& key, const std::string& passphrase) {
  const auto parsed = PemKey(key);
  const BioHandle bio(BIO_new(BIO_s_mem()));
  Need(parsed.ok() && PEM_write_bio_PKCS8PrivateKey(
                          bio.get(), parsed->get(), EVP_aes_128_cbc(), passphrase.c_str(),
                          static_cast<int>(passphrase.size()), nullptr, nullptr) == 1);
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &bytes);
  return {bytes, static_cast<size_t>(size)};
}

}  // namespace tessera::tests
