#include "tests/tls/issued.h"

#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <cstdlib>

#include "third_party/openssl/handles.h"
#include "tls/pem.h"

namespace tessera::tests {
namespace {

void Need(bool made) {
  if (!made) std::abort();
}

KeyHandle NewKey(int rsa_bits) {
  KeyHandle key(rsa_bits > 0 ? EVP_RSA_gen(static_cast<unsigned>(rsa_bits)) : EVP_EC_gen("P-256"));
  Need(key != nullptr);
  return key;
}

std::string Text(const BioHandle& bio) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &bytes);
  return {bytes, static_cast<size_t>(size)};
}

std::string Pem(X509* certificate) {
  const BioHandle bio(BIO_new(BIO_s_mem()));
  Need(PEM_write_bio_X509(bio.get(), certificate) == 1);
  return Text(bio);
}

std::string Pem(EVP_PKEY* key) {
  const BioHandle bio(BIO_new(BIO_s_mem()));
  Need(PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1);
  return Text(bio);
}

void Extend(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  Need(extension != nullptr && X509_add_ext(certificate, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

X509Handle Blank(const std::string& common_name, EVP_PKEY* key, int64_t begins, int64_t ends) {
  X509Handle certificate(X509_new());
  X509_set_version(certificate.get(), X509_VERSION_3);
  uint32_t serial = 0;
  Need(RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) == 1);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate.get()), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), begins);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), ends);
  Need(X509_set_pubkey(certificate.get(), key) == 1);
  X509_NAME* name = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1,
                             0);
  return certificate;
}

}  // namespace

Issued IssueAuthority(const std::string& common_name) {
  const KeyHandle key = NewKey(0);
  const X509Handle certificate = Blank(common_name, key.get(), -7200, 7 * 86400);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate.get()));
  Extend(certificate.get(), certificate.get(), NID_basic_constraints, "critical,CA:TRUE");
  Extend(certificate.get(), certificate.get(), NID_key_usage, "critical,keyCertSign,cRLSign");
  Extend(certificate.get(), certificate.get(), NID_subject_key_identifier, "hash");
  Need(X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0);
  return {Pem(certificate.get()), Pem(key.get())};
}

Issued Issue(const Issued& authority, const IssueOptions& options) {
  const std::vector<X509Handle> issuer = PemCertificates(authority.certificate);
  const auto issuer_key = PemKey(authority.key);
  Need(issuer.size() == 1 && issuer_key.ok());
  const KeyHandle key = NewKey(options.rsa_bits);
  const X509Handle certificate =
      Blank(options.common_name, key.get(), options.begins_in_seconds, options.ends_in_seconds);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer.front().get()));
  std::string names;
  for (const std::string& name : options.names) names += (names.empty() ? "DNS:" : ",DNS:") + name;
  for (const std::string& address : options.addresses)
    names += (names.empty() ? "IP:" : ",IP:") + address;
  if (!names.empty()) Extend(certificate.get(), issuer.front().get(), NID_subject_alt_name, names);
  Extend(certificate.get(), issuer.front().get(), NID_basic_constraints, "CA:FALSE");
  Need(X509_sign(certificate.get(), issuer_key->get(), EVP_sha256()) > 0);
  return {Pem(certificate.get()), Pem(key.get())};
}

std::string Encrypted(const std::string& key, const std::string& passphrase) {
  const auto parsed = PemKey(key);
  const BioHandle bio(BIO_new(BIO_s_mem()));
  Need(parsed.ok() && PEM_write_bio_PKCS8PrivateKey(
                          bio.get(), parsed->get(), EVP_aes_128_cbc(), passphrase.c_str(),
                          static_cast<int>(passphrase.size()), nullptr, nullptr) == 1);
  return Text(bio);
}

}  // namespace tessera::tests
