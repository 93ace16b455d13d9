#include "tls/pem.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <utility>

namespace tessera {
namespace {

// Else OpenSSL asks the terminal.
int NoPassphrase(char*, int, int, void*) { return 0; }

// It goes into logs, and an end of text within it would hide what follows.
std::string Printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c > 0x7E; }, '?');
  return text;
}

std::vector<std::string> NamesOf(const X509& certificate) {
  std::vector<std::string> names;
  GENERAL_NAMES* found = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(found); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(found, i);
    if (name->type != GEN_DNS && name->type != GEN_IPADD) continue;
    const ASN1_STRING* value = name->type == GEN_DNS ? name->d.dNSName : name->d.iPAddress;
    const unsigned char* bytes = ASN1_STRING_get0_data(value);
    const int length = ASN1_STRING_length(value);
    char text[INET6_ADDRSTRLEN] = {};
    if (name->type == GEN_DNS)
      names.push_back(
          Printable({reinterpret_cast<const char*>(bytes), static_cast<size_t>(length)}));
    else if ((length == 4 || length == 16) &&
             inet_ntop(length == 4 ? AF_INET : AF_INET6, bytes, text, sizeof text) != nullptr)
      names.emplace_back(text);
  }
  GENERAL_NAMES_free(found);
  return names;
}

std::string CommonName(const X509_NAME* name) {
  const int at = X509_NAME_get_index_by_NID(name, NID_commonName, -1);
  if (at < 0) return "";
  unsigned char* bytes = nullptr;
  const int length =
      ASN1_STRING_to_UTF8(&bytes, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at)));
  if (length < 0) return "";
  std::string text(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
  OPENSSL_free(bytes);
  return Printable(std::move(text));
}

}  // namespace

CertificateOwner OwnerOf(const X509& certificate) {
  return {.common_name = CommonName(X509_get_subject_name(&certificate)),
          .issuer = CommonName(X509_get_issuer_name(&certificate)),
          .names = NamesOf(certificate)};
}

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
