#include "tls/issue.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <utility>

#include "third_party/openssl/handles.h"
#include "tls/pem.h"

namespace tessera {
namespace {

std::string Text(const BioHandle& bio) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &bytes);
  return {bytes, static_cast<size_t>(size)};
}

// Empty: OpenSSL failed.
Issued PemOf(X509* certificate, EVP_PKEY* key) {
  const BioHandle first(BIO_new(BIO_s_mem())), second(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(first.get(), certificate) != 1 ||
      PEM_write_bio_PrivateKey(second.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return {};
  }
  return {Text(first), Text(second)};
}

bool Extend(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  const bool added = extension != nullptr && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

KeyHandle NewKey(int rsa_bits) {
  return KeyHandle(rsa_bits > 0 ? EVP_RSA_gen(static_cast<unsigned>(rsa_bits))
                                : EVP_EC_gen("P-256"));
}

// All but issuer, extensions and signature; null: OpenSSL failed.
X509Handle Blank(const IssueOptions& options, EVP_PKEY* key) {
  X509Handle certificate(X509_new());
  uint64_t serial = 0;
  if (certificate == nullptr || key == nullptr ||
      RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) != 1) {
    return nullptr;
  }
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate.get()), serial >> 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), options.begins_in_seconds);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), options.ends_in_seconds);
  X509_NAME* name = X509_get_subject_name(certificate.get());
  if (X509_set_pubkey(certificate.get(), key) != 1 ||
      X509_NAME_add_entry_by_txt(
          name, "CN", MBSTRING_UTF8,
          reinterpret_cast<const unsigned char*>(options.common_name.c_str()), -1, -1, 0) != 1) {
    return nullptr;
  }
  return certificate;
}

absl::Status Failed() {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return absl::InternalError(std::string("OpenSSL makes no certificate: ") +
                             (reason == nullptr ? "no reason is known" : reason));
}

}  // namespace

absl::StatusOr<Issued> MakeAuthority(const IssueOptions& options) {
  const KeyHandle key = NewKey(options.rsa_bits);
  const X509Handle made = Blank(options, key.get());
  if (made == nullptr) return Failed();
  X509* const certificate = made.get();
  X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
  const bool done =
      Extend(certificate, certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
      Extend(certificate, certificate, NID_key_usage, "critical,keyCertSign,cRLSign") &&
      Extend(certificate, certificate, NID_subject_key_identifier, "hash") &&
      X509_sign(certificate, key.get(), EVP_sha256()) > 0;
  Issued issued = done ? PemOf(certificate, key.get()) : Issued{};
  if (issued.certificate.empty()) return Failed();
  return issued;
}

absl::StatusOr<Issued> SignCertificate(const Issued& authority, const IssueOptions& options) {
  const std::vector<X509Handle> issuer = PemCertificates(authority.certificate);
  const absl::StatusOr<KeyHandle> issuer_key = PemKey(authority.key);
  if (!issuer_key.ok()) return issuer_key.status();
  if (issuer.empty() || X509_check_private_key(issuer.front().get(), issuer_key->get()) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError("the authority's key is not that of its certificate");
  }
  std::string names;
  for (const std::string& name : options.names) names += (names.empty() ? "DNS:" : ",DNS:") + name;
  for (const std::string& address : options.addresses)
    names += (names.empty() ? "IP:" : ",IP:") + address;
  const KeyHandle key = NewKey(options.rsa_bits);
  const X509Handle made = Blank(options, key.get());
  if (made == nullptr) return Failed();
  X509* const certificate = made.get();
  X509* const signer = issuer.front().get();
  X509_set_issuer_name(certificate, X509_get_subject_name(signer));
  if (!names.empty() && !Extend(certificate, signer, NID_subject_alt_name, names)) {
    ERR_clear_error();
    return absl::InvalidArgumentError("not the names of a certificate: " + names);
  }
  const bool done = Extend(certificate, signer, NID_basic_constraints, "CA:FALSE") &&
                    Extend(certificate, signer, NID_ext_key_usage, "serverAuth,clientAuth") &&
                    X509_sign(certificate, issuer_key->get(), EVP_sha256()) > 0;
  Issued issued = done ? PemOf(certificate, key.get()) : Issued{};
  if (issued.certificate.empty()) return Failed();
  return issued;
}

}  // namespace tessera
