#pragma once

#include <memory>

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

namespace sluice {

// Owners of OpenSSL's objects.
template <auto kFree>
struct OpensslDeleter {
  template <class Object>
  void operator()(Object* object) const {
    kFree(object);
  }
};
using BioPtr = std::unique_ptr<BIO, OpensslDeleter<BIO_free_all>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, OpensslDeleter<EVP_PKEY_free>>;
using SslPtr = std::unique_ptr<SSL, OpensslDeleter<SSL_free>>;
using CrlPtr = std::unique_ptr<X509_CRL, OpensslDeleter<X509_CRL_free>>;
using X509Ptr = std::unique_ptr<X509, OpensslDeleter<X509_free>>;

}  // namespace sluice
