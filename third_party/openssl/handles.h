// OpenSSL's objects with an owner.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>

namespace tessera {

template <auto kFree>
struct OpensslDeleter {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};

using BioHandle = std::unique_ptr<BIO, OpensslDeleter<BIO_free>>;
using X509Handle = std::unique_ptr<X509, OpensslDeleter<X509_free>>;
using KeyHandle = std::unique_ptr<EVP_PKEY, OpensslDeleter<EVP_PKEY_free>>;
using SslContextHandle = std::unique_ptr<SSL_CTX, OpensslDeleter<SSL_CTX_free>>;

}  // namespace tessera
