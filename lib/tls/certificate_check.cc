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

using StoreCheck = std::unique_ptr<X509_STORE_CTX, OpensslDeleter<X509_STORE_CTX_free>>;

void FreeAll(STACK_OF(X509) * certificates) {
  sk_X509_pop_free(certificates, X509_free);
}

// Finds a certificate by its issuer and its number, without the signatures of the lists: a check of these takes
// milliseconds, a look about 2 us, and a proxy has ten thousand connections.
bool AnyListNames(X509_STORE* store, const STACK_OF(X509) * chain) {
  bool named = false;
  // Handshakes of other threads may add authorities of the system meanwhile.
  X509_STORE_lock(store);
  const STACK_OF(X509_OBJECT)* const objects = X509_STORE_get0_objects(store);
  for (int i = 0; i < sk_X509_OBJECT_num(objects) && !named; ++i) {
    X509_CRL* const crl = X509_OBJECT_get0_X509_CRL(sk_X509_OBJECT_value(objects, i));
    for (int j = 0; crl != nullptr && j < sk_X509_num(chain) && !named; ++j) {
      X509_REVOKED* entry = nullptr;
      named = X509_CRL_get0_by_cert(crl, &entry, sk_X509_value(chain, j)) != 0;
    }
  }
  X509_STORE_unlock(store);
  return named;
}

int AcceptUnlessRevoked(int ok, X509_STORE_CTX* check) {
  return ok == 1 || X509_STORE_CTX_get_error(check) != X509_V_ERR_CERT_REVOKED ? 1 : 0;
}

}  // namespace

// A list of another authority of the same name, or an older list, may name the certificate. The whole check decides.
absl::Status CheckNotRevoked(SSL_CTX& context, STACK_OF(X509) * chain, absl::string_view peer) {
  X509_STORE* const store = SSL_CTX_get_cert_store(&context);
  if (chain == nullptr || !AnyListNames(store, chain)) return absl::OkStatus();
  const StoreCheck check(X509_STORE_CTX_new());
  if (check == nullptr || X509_STORE_CTX_init(check.get(), store, sk_X509_value(chain, 0), chain) != 1) {
    return absl::OkStatus();
  }
  X509_VERIFY_PARAM_set_flags(X509_STORE_CTX_get0_param(check.get()), X509_V_FLAG_PARTIAL_CHAIN);
  X509_STORE_CTX_set_verify_cb(check.get(), AcceptUnlessRevoked);
  const bool revoked =
      X509_verify_cert(check.get()) != 1 && X509_STORE_CTX_get_error(check.get()) == X509_V_ERR_CERT_REVOKED;
  ERR_clear_error();
  return revoked ? absl::UnavailableError(CertificateError(check.get(), peer, "")) : absl::OkStatus();
}

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
  const StoreCheck check(X509_STORE_CTX_new());
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
