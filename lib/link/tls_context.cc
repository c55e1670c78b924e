#include "lib/link/tls_context.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "lib/tls/openssl_error.h"
#include "lib/tls/pem_file.h"

namespace sluice {
namespace {

constexpr std::chrono::seconds kLookEvery(1);

// With forward secrecy and authenticated encryption: HTTP/2 forbids the others with TLS 1.2 (RFC 9113, appendix A).
constexpr char kTls12Ciphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20";

absl::Status TrustAuthorities(SSL_CTX& context, const std::string& ca_file) {
  ERR_clear_error();
  if (ca_file.empty()) {
    if (SSL_CTX_set_default_verify_paths(&context) == 1) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat("ca_file is empty, and the system's authorities: ", OpensslReason()));
  }
  const absl::StatusOr<std::vector<X509Ptr>> certificates = ReadCertificates({.field = "ca_file", .path = ca_file});
  if (!certificates.ok()) return certificates.status();
  for (const X509Ptr& certificate : *certificates) {
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(&context), certificate.get()) == 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("ca_file: \"", ca_file, "\" has a certificate that is not taken: ", OpensslReason()));
  }
  return absl::OkStatus();
}

absl::Status ShowIdentity(SSL_CTX& context, const std::string& certificate_file, const std::string& key_file) {
  const absl::StatusOr<TlsIdentity> identity =
      ReadIdentity({.field = "certificate_file", .path = certificate_file}, {.field = "key_file", .path = key_file});
  if (!identity.ok()) return identity.status();
  bool taken = SSL_CTX_use_certificate(&context, identity->chain.front().get()) == 1;
  for (size_t i = 1; taken && i < identity->chain.size(); ++i) {
    taken = SSL_CTX_add1_chain_cert(&context, identity->chain[i].get()) == 1;
  }
  if (taken && SSL_CTX_use_PrivateKey(&context, identity->key.get()) == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(taken ? "key_file: \"" : "certificate_file: \"",
                                                 taken ? key_file : certificate_file,
                                                 "\" is not taken: ", OpensslReason()));
}

absl::StatusOr<std::shared_ptr<SSL_CTX>> Load(const TlsOptions& options) {
  if (options.certificate_file.empty() != options.key_file.empty()) {
    return absl::InvalidArgumentError(options.key_file.empty()
                                          ? "certificate_file is set and key_file is not; set both"
                                          : "key_file is set and certificate_file is not; set both");
  }
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  if (context == nullptr) return absl::ResourceExhaustedError("SSL_CTX_new failed");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_cipher_list(context.get(), kTls12Ciphers);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION);  // RFC 9113, section 9.2.1
  // A connection that is idle, as most are, keeps no buffers.
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  static constexpr unsigned char kProtocols[] = {2, 'h', '2'};
  SSL_CTX_set_alpn_protos(context.get(), kProtocols, sizeof(kProtocols));
  // An authority need not be a root, as gRPC has it.
  X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context.get()), X509_V_FLAG_PARTIAL_CHAIN);
  absl::Status status = TrustAuthorities(*context, options.ca_file);
  if (status.ok() && !options.certificate_file.empty()) {
    status = ShowIdentity(*context, options.certificate_file, options.key_file);
  }
  if (!status.ok()) return status;
  return context;
}

}  // namespace

absl::Status ValidateTls(const TlsOptions& options) {
  return Load(options).status();
}

absl::StatusOr<std::shared_ptr<TlsContext>> TlsContext::Create(const TlsOptions& options, Clock now) {
  std::shared_ptr<TlsContext> context(new TlsContext(options, std::move(now)));
  context->looked_ = context->now_();
  if (absl::Status status = context->Reload(); !status.ok()) return status;
  return context;
}

absl::Status TlsContext::reload_status() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return reload_status_;
}

std::shared_ptr<SSL_CTX> TlsContext::Current() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const TimePoint now = now_(); now - looked_ >= kLookEvery) {
    looked_ = now;
    if (!reload_status_.ok() || Versions() != versions_) reload_status_ = Reload();
  }
  return current_;
}

// The versions are those before the files are read: one that changes meanwhile is read again.
absl::Status TlsContext::Reload() const {
  const FileVersions versions = Versions();
  absl::StatusOr<std::shared_ptr<SSL_CTX>> loaded = Load(options_);
  if (!loaded.ok()) return loaded.status();
  current_ = *std::move(loaded);
  versions_ = versions;
  return absl::OkStatus();
}

TlsContext::FileVersion TlsContext::VersionOf(const std::string& file) {
  struct stat status {};
  if (file.empty() || stat(file.c_str(), &status) != 0) return {};
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .bytes = status.st_size,
          .changed_ns = int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

TlsContext::FileVersions TlsContext::Versions() const {
  return {VersionOf(options_.ca_file), VersionOf(options_.certificate_file), VersionOf(options_.key_file)};
}

}  // namespace sluice
