#include "lib/tls/certificate_check.h"

#include <memory>
#include <utility>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include "absl/strings/str_cat.h"
#include "lib/tls/openssl_types.h"
#include "lib/tls/tls_errors.h"

namespace sluice {
namespace {

void FreeAll(STACK_OF(X509) * certificates) {
  sk_X509_pop_free(certificates, X509_free);
}

}  // namespace

absl::Status CheckClientCertificate(SSL_CTX& context, absl::string_view certificate, absl::string_view others) {
  const BioPtr own_text(BIO_new_mem_buf(certificate.data(), static_cast<int>(certificate.size())));
  const BioPtr other_text(BIO_new_mem_buf(others.data(), static_cast<int>(others.size())));
  const X509Ptr own(PEM_read_bio_X509(own_text.get(), nullptr, nullptr, nullptr));
  if (own == nullptr) {
    ERR_clear_error();
    return absl::UnauthenticatedError("a client showed no certificate");
  }
  const std::unique_ptr<STACK_OF(X509), OpensslDeleter<FreeAll>> untrusted(sk_X509_new_null());
  while (X509* next = PEM_read_bio_X509(other_text.get(), nullptr, nullptr, nullptr)) {
    sk_X509_push(untrusted.get(), next);
  }
  ERR_clear_error();
  const std::unique_ptr<X509_STORE_CTX, OpensslDeleter<X509_STORE_CTX_free>> check(X509_STORE_CTX_new());
  if (check == nullptr ||
      X509_STORE_CTX_init(check.get(), SSL_CTX_get_cert_store(&context), own.get(), untrusted.get()) != 1) {
    return absl::ResourceExhaustedError("X509_STORE_CTX_init failed");
  }
  X509_STORE_CTX_set_default(check.get(), "ssl_client");
  X509_VERIFY_PARAM_set_flags(X509_STORE_CTX_get0_param(check.get()), X509_V_FLAG_PARTIAL_CHAIN);
  const bool valid = X509_verify_cert(check.get()) == 1;
  ERR_clear_error();
  if (valid) return absl::OkStatus();
  return absl::UnauthenticatedError(
      CertificateError(check.get(), absl::StrCat("a client (", CertificateNames(own.get()), ")"), ""));
}

}  // namespace sluice
