#include "tests/unit/tls/test_authority.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

namespace sluice::testing {
namespace {

constexpr long kDaySeconds = 24 * 3600;

struct Free {
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509_CRL* crl) const { X509_CRL_free(crl); }
  void operator()(ASN1_TIME* time) const { ASN1_TIME_free(time); }
  void operator()(X509_EXTENSION* extension) const { X509_EXTENSION_free(extension); }
};
using Certificate = std::unique_ptr<X509, Free>;
using Key = std::unique_ptr<EVP_PKEY, Free>;

// Ends the test on failure: no test can run without certificates.
void Must(bool done, const std::string& what) {
  if (done) return;
  std::cerr << "test certificates: " << what << std::endl;
  std::abort();
}

Key NewKey() {
  Key key(EVP_EC_gen("P-256"));
  Must(key != nullptr, "no key");
  return key;
}

void Extend(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, Free> extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  Must(extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1, value);
}

// Makes an unsigned certificate. If `issuer` is null, it is its own issuer.
Certificate NewCertificate(const std::string& name, EVP_PKEY* key, X509* issuer, long serial) {
  Certificate certificate(X509_new());
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kDaySeconds);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kDaySeconds);
  X509_NAME* const subject = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1,
                             0);
  X509_set_issuer_name(certificate.get(), issuer == nullptr ? subject : X509_get_subject_name(issuer));
  Must(X509_set_pubkey(certificate.get(), key) == 1, "no public key");
  return certificate;
}

template <class Write>
void Replace(const std::string& path, const Write& write) {
  const std::string partial = path + ".partial";
  std::FILE* const file = std::fopen(partial.c_str(), "w");
  Must(file != nullptr, "cannot write " + path);
  const bool written = write(file) == 1;
  Must(std::fclose(file) == 0 && written && std::rename(partial.c_str(), path.c_str()) == 0, "cannot write " + path);
}

// `above` may be null.
void WriteCertificates(const std::string& path, X509* certificate, X509* above) {
  Replace(path, [certificate, above](std::FILE* file) {
    return PEM_write_X509(file, certificate) == 1 && (above == nullptr || PEM_write_X509(file, above) == 1) ? 1 : 0;
  });
}

}  // namespace

struct TestAuthority::State {
  Key key = NewKey();
  Certificate certificate;
  long serial = 1;
  bool is_root = true;
};

TestAuthority::TestAuthority(const std::filesystem::path& folder, const std::string& name, TestAuthority* above)
    : folder_(folder), file_(folder / (name + ".pem")), state_(std::make_unique<State>()) {
  state_->is_root = above == nullptr;
  X509* const signer = above == nullptr ? nullptr : above->state_->certificate.get();
  const long serial = above == nullptr ? state_->serial : ++above->state_->serial;
  state_->certificate = NewCertificate(name, state_->key.get(), signer, serial);
  X509* const own = state_->certificate.get();
  X509* const issuer = above == nullptr ? own : signer;
  Extend(own, issuer, NID_basic_constraints, "critical,CA:TRUE");
  Extend(own, issuer, NID_key_usage, "critical,keyCertSign,cRLSign");
  EVP_PKEY* const key = above == nullptr ? state_->key.get() : above->state_->key.get();
  Must(X509_sign(own, key, EVP_sha256()) > 0, "cannot sign");
  WriteCertificates(file_, own, nullptr);
}

TestAuthority::~TestAuthority() = default;

TestIdentity TestAuthority::Issue(const std::string& name, const std::string& hosts) {
  const TestIdentity identity{.certificate_file = folder_ / (name + ".pem"), .key_file = folder_ / (name + ".key")};
  const Key key = NewKey();
  X509* const issuer = state_->certificate.get();
  const Certificate certificate = NewCertificate(name, key.get(), issuer, ++state_->serial);
  Extend(certificate.get(), issuer, NID_basic_constraints, "CA:FALSE");
  Extend(certificate.get(), issuer, NID_ext_key_usage, "serverAuth,clientAuth");
  if (!hosts.empty()) Extend(certificate.get(), issuer, NID_subject_alt_name, hosts);
  Must(X509_sign(certificate.get(), state_->key.get(), EVP_sha256()) > 0, "cannot sign");
  Replace(identity.key_file, [&key](std::FILE* file) {
    return PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  WriteCertificates(identity.certificate_file, certificate.get(), state_->is_root ? nullptr : issuer);
  return identity;
}

std::string TestAuthority::Revoke(const std::string& name, const std::vector<std::string>& certificate_files,
                                  bool valid) {
  const std::unique_ptr<X509_CRL, Free> crl(X509_CRL_new());
  X509_CRL_set_version(crl.get(), 1);
  X509_CRL_set_issuer_name(crl.get(), X509_get_subject_name(state_->certificate.get()));
  const std::unique_ptr<ASN1_TIME, Free> before(X509_gmtime_adj(nullptr, -kDaySeconds));
  const std::unique_ptr<ASN1_TIME, Free> after(X509_gmtime_adj(nullptr, valid ? kDaySeconds : -1));
  X509_CRL_set1_lastUpdate(crl.get(), before.get());
  X509_CRL_set1_nextUpdate(crl.get(), after.get());
  for (const std::string& path : certificate_files) {
    std::FILE* const file = std::fopen(path.c_str(), "r");
    Must(file != nullptr, "cannot read " + path);
    const Certificate certificate(PEM_read_X509(file, nullptr, nullptr, nullptr));
    std::fclose(file);
    X509_REVOKED* const revoked = X509_REVOKED_new();
    X509_REVOKED_set_serialNumber(revoked, X509_get_serialNumber(certificate.get()));
    X509_REVOKED_set_revocationDate(revoked, before.get());
    Must(X509_CRL_add0_revoked(crl.get(), revoked) == 1, "cannot revoke " + path);
  }
  Must(X509_CRL_sign(crl.get(), state_->key.get(), EVP_sha256()) > 0, "cannot sign");
  const std::string path = folder_ / name;
  Replace(path, [&crl](std::FILE* file) { return PEM_write_X509_CRL(file, crl.get()); });
  return path;
}

}  // namespace sluice::testing
