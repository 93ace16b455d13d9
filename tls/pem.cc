#include "tls/pem.h"

#include <openssl/err.h>
#include <openssl/pem.h>

namespace tessera {
namespace {

// Else OpenSSL asks the terminal.
int NoPassphrase(char*, int, int, void*) { return 0; }

}  // namespace

std::vector<X509Handle> PemCertificates(const std::string& text) {
  std::vector<X509Handle> certificates;
  const BioHandle bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr))
    certificates.emplace_back(next);
  ERR_clear_error();
  return certificates;
}

absl::StatusOr<KeyHandle> PemKey(const std::string& text) {
  const BioHandle bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  KeyHandle key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  if (key != nullptr) return key;
  if (text.find("ENCRYPTED") != std::string::npos) {
    return absl::InvalidArgumentError(
        "it has a passphrase, and nobody is there to type it: openssl pkey -in KEY -out PLAIN_KEY "
        "takes it off");
  }
  return absl::InvalidArgumentError(
      "it holds no private key: PEM is expected, beginning with -----BEGIN PRIVATE KEY-----");
}

}  // namespace tessera
