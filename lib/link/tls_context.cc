#include "lib/link/tls_context.h"

#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <sys/stat.h>

#include "lib/link/tls_files.h"

namespace sluice {
namespace {

constexpr std::chrono::seconds kLookEvery(1);

// With forward secrecy and authenticated encryption: HTTP/2 forbids the others with TLS 1.2 (RFC 9113, appendix A).
constexpr char kTls12Ciphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20";

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
  absl::Status status = LoadAuthorities(*context, options.ca_file);
  if (status.ok() && !options.certificate_file.empty()) {
    status = LoadCertificate(*context, options.certificate_file, options.key_file);
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
