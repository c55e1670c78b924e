#include "lib/tls/tls_context.h"

#include <algorithm>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <sys/stat.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lib/tls/openssl_error.h"
#include "lib/tls/pem_file.h"

namespace sluice {
namespace {

// Connections are checked against new revocation lists every second. A look for a new connection may come shortly
// before that.
constexpr std::chrono::milliseconds kLookEvery(500);

// These ciphers have forward secrecy and authenticated encryption: HTTP/2 forbids all others with TLS 1.2 (RFC 9113,
// appendix A).
constexpr char kTls12Ciphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20";

constexpr unsigned char kProtocols[] = {2, 'h', '2'};
// The best first. Clients that ask for a tunnel use HTTP/1.1, and some offer HTTP/2, too.
constexpr unsigned char kListenerProtocols[] = {2, 'h', '2', 8, 'h', 't', 't', 'p', '/', '1', '.', '1'};

// The fields of a ListenerTls, as named in the config of sluice-proxy.
constexpr char kCertificate[] = "listener_tls.certificate";
constexpr char kKey[] = "listener_tls.key";
constexpr char kClientCa[] = "listener_tls.client_ca";
constexpr char kCrl[] = "listener_tls.crl";
constexpr size_t kMaxNameBytes = 2048;

absl::Status TrustSystem(SSL_CTX& context) {
  ERR_clear_error();
  if (SSL_CTX_set_default_verify_paths(&context) == 1) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("ca_file is empty, and the system's authorities: ", OpensslReason()));
}

absl::Status TrustAuthorities(SSL_CTX& context, const PemFile& file) {
  const absl::StatusOr<std::vector<X509Ptr>> certificates = ReadCertificates(file);
  if (!certificates.ok()) return certificates.status();
  for (const X509Ptr& certificate : *certificates) {
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(&context), certificate.get()) == 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(file.field, ": \"", file.path, "\" has a certificate that is not taken: ", OpensslReason()));
  }
  return absl::OkStatus();
}

// A certificate without a list of its issuer is refused, and so is one whose list has expired.
absl::Status RefuseRevoked(SSL_CTX& context, const PemFile& file) {
  if (file.path.empty()) return absl::OkStatus();
  const absl::StatusOr<std::vector<CrlPtr>> crls = ReadCrls(file);
  if (!crls.ok()) return crls.status();
  X509_STORE* const store = SSL_CTX_get_cert_store(&context);
  for (const CrlPtr& crl : *crls) {
    if (X509_STORE_add_crl(store, crl.get()) == 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(file.field, ": \"", file.path, "\" has a CRL that is not taken: ", OpensslReason()));
  }
  X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
  return absl::OkStatus();
}

absl::Status ShowIdentity(SSL_CTX& context, const PemFile& certificate, const PemFile& key) {
  const absl::StatusOr<TlsIdentity> identity = ReadIdentity(certificate, key);
  if (!identity.ok()) return identity.status();
  bool taken = SSL_CTX_use_certificate(&context, identity->chain.front().get()) == 1;
  for (size_t i = 1; taken && i < identity->chain.size(); ++i) {
    taken = SSL_CTX_add1_chain_cert(&context, identity->chain[i].get()) == 1;
  }
  if (taken && SSL_CTX_use_PrivateKey(&context, identity->key.get()) == 1) return absl::OkStatus();
  const PemFile& refused = taken ? key : certificate;
  return absl::InvalidArgumentError(
      absl::StrCat(refused.field, ": \"", refused.path, "\" is not taken: ", OpensslReason()));
}

// Makes a context with the settings that clients and listeners share.
absl::StatusOr<std::shared_ptr<SSL_CTX>> NewContext(const SSL_METHOD* method) {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(method), SSL_CTX_free);
  if (context == nullptr) return absl::ResourceExhaustedError("SSL_CTX_new failed");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_cipher_list(context.get(), kTls12Ciphers);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION);  // RFC 9113, section 9.2.1
  // An idle connection keeps no buffers, and most connections are idle.
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  // As in gRPC, a trusted authority need not be a root.
  X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context.get()), X509_V_FLAG_PARTIAL_CHAIN);
  return context;
}

absl::StatusOr<std::shared_ptr<SSL_CTX>> LoadForWorkers(const TlsOptions& options) {
  if (options.certificate_file.empty() != options.key_file.empty()) {
    return absl::InvalidArgumentError(options.key_file.empty()
                                          ? "certificate_file is set and key_file is not; set both"
                                          : "key_file is set and certificate_file is not; set both");
  }
  absl::StatusOr<std::shared_ptr<SSL_CTX>> context = NewContext(TLS_client_method());
  if (!context.ok()) return context;
  SSL_CTX_set_alpn_protos(context->get(), kProtocols, sizeof(kProtocols));
  absl::Status status = options.ca_file.empty()
                            ? TrustSystem(**context)
                            : TrustAuthorities(**context, {.field = "ca_file", .path = options.ca_file});
  status.Update(RefuseRevoked(**context, {.field = "crl_file", .path = options.crl_file}));
  if (status.ok() && !options.certificate_file.empty()) {
    status = ShowIdentity(**context, {.field = "certificate_file", .path = options.certificate_file},
                          {.field = "key_file", .path = options.key_file});
  }
  if (!status.ok()) return status;
  return context;
}

// OpenSSL does not call this for a client that offers no protocol.
int SelectProtocol(SSL* /*ssl*/, const unsigned char** selected, unsigned char* selected_bytes,
                   const unsigned char* offered, unsigned int offered_bytes, void* /*unused*/) {
  unsigned char* found = nullptr;
  if (SSL_select_next_proto(&found, selected_bytes, kListenerProtocols, sizeof(kListenerProtocols), offered,
                            offered_bytes) != OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *selected = found;
  return SSL_TLSEXT_ERR_OK;
}

absl::StatusOr<std::shared_ptr<SSL_CTX>> LoadForListener(const ServerTls& files) {
  absl::StatusOr<std::shared_ptr<SSL_CTX>> context = NewContext(TLS_server_method());
  if (!context.ok()) return context;
  SSL_CTX_set_alpn_select_cb(context->get(), SelectProtocol, nullptr);
  // Disable session tickets, so that each connection is checked against the current certificates and names.
  SSL_CTX_set_options(context->get(), SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(context->get(), 0);
  absl::Status status = TrustAuthorities(**context, {.field = kClientCa, .path = files.client_ca_file});
  status.Update(RefuseRevoked(**context, {.field = kCrl, .path = files.crl_file}));
  status.Update(ShowIdentity(**context, {.field = kCertificate, .path = files.certificate_file},
                             {.field = kKey, .path = files.key_file}));
  if (!status.ok()) return status;
  return context;
}

absl::Status CheckGiven(absl::string_view field, const std::string& file, absl::string_view what) {
  if (!file.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " is empty; a listener with TLS needs ", what));
}

}  // namespace

absl::Status ValidateTls(const TlsOptions& options) {
  return LoadForWorkers(options).status();
}

// A name that cannot occur in a certificate would reject every client.
absl::Status ValidateClientName(absl::string_view field, const std::string& name) {
  if (!name.empty() && name.size() <= kMaxNameBytes &&
      std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_isgraph(c); })) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(field, ": \"", absl::CHexEscape(name.substr(0, kMaxNameBytes)),
                                                 "\" is not 1 to ", kMaxNameBytes,
                                                 " printable characters of ASCII without a space"));
}

absl::Status ValidateListenerTls(const ListenerTls& options, bool look_at_files) {
  absl::Status status =
      CheckGiven(kCertificate, options.files.certificate_file, "the certificate chain that clients check");
  status.Update(CheckGiven(kKey, options.files.key_file, "the private key of its certificate"));
  status.Update(
      CheckGiven(kClientCa, options.files.client_ca_file, "the authorities that sign the certificates of its clients"));
  for (const std::string& name : options.client_names)
    status.Update(ValidateClientName("listener_tls.client_names", name));
  if (status.ok() && look_at_files) status = LoadForListener(options.files).status();
  return status;
}

absl::StatusOr<std::shared_ptr<TlsContext>> TlsContext::Create(const TlsOptions& options, Clock now) {
  std::shared_ptr<TlsContext> context(
      new TlsContext([options] { return LoadForWorkers(options); },
                     {options.ca_file, options.certificate_file, options.key_file, options.crl_file}, std::move(now)));
  context->options_ = options;
  if (absl::Status status = context->Begin(); !status.ok()) return status;
  return context;
}

absl::StatusOr<std::shared_ptr<TlsContext>> TlsContext::CreateForListener(const ListenerTls& options, Clock now) {
  if (absl::Status valid = ValidateListenerTls(options, /*look_at_files=*/false); !valid.ok()) return valid;
  const ServerTls& files = options.files;
  std::shared_ptr<TlsContext> context(
      new TlsContext([files] { return LoadForListener(files); },
                     {files.client_ca_file, files.certificate_file, files.key_file, files.crl_file}, std::move(now)));
  context->client_names_ = options.client_names;
  if (absl::Status status = context->Begin(); !status.ok()) return status;
  return context;
}

absl::Status TlsContext::Begin() {
  looked_ = now_();
  return Reload();
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

// Takes the versions before it reads the files, so a file that changes during the read is read again.
absl::Status TlsContext::Reload() const {
  const FileVersions versions = Versions();
  absl::StatusOr<std::shared_ptr<SSL_CTX>> loaded = load_();
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
  return {VersionOf(files_[0]), VersionOf(files_[1]), VersionOf(files_[2]), VersionOf(files_[3])};
}

}  // namespace sluice
