#include "lib/storage/serving/server_credentials.h"

#include <functional>
#include <utility>

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include "lib/storage/serving/access_control.h"
#include "lib/storage/serving/grpc_status.h"
#include "lib/tls/certificate_check.h"
#include "lib/tls/tls_context.h"

namespace sluice {
namespace {

constexpr unsigned int kLookIntervalSeconds = 1;

// Refuses clients whose certificates are revoked. gRPC 1.51 has revocation lists in a folder, and reads each of them
// once. There is one for each server. Thread-safe.
class RevocationCheck final : public grpc::experimental::ExternalCertificateVerifier {
 public:
  explicit RevocationCheck(std::shared_ptr<TlsContext> context) : context_(std::move(context)) {}

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* status) override {
    const auto view = [](grpc::string_ref text) { return absl::string_view(text.data(), text.size()); };
    const absl::Status valid = CheckClientCertificate(*context_->Current(), view(request->peer_cert()),
                                                      view(request->peer_cert_full_chain()), "a client");
    if (!valid.ok()) *status = ToGrpc(valid);
    return true;  // it is decided
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest*) override {}

 private:
  const std::shared_ptr<TlsContext> context_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const std::optional<ServerTls>& tls) {
  if (!tls.has_value()) return grpc::InsecureServerCredentials();
  // gRPC would start with unusable files, and reject every client.
  if (absl::Status valid = ValidateServerTls(*tls); !valid.ok()) return valid;
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(tls->key_file, tls->certificate_file,
                                                                           tls->client_ca_file, kLookIntervalSeconds));
  options.watch_identity_key_cert_pairs();
  if (!tls->client_ca_file.empty() && !tls->crl_file.empty()) {
    absl::StatusOr<std::shared_ptr<TlsContext>> context = TlsContext::CreateForListener({.files = *tls});
    if (!context.ok()) return context.status();
    options.set_certificate_verifier(
        grpc::experimental::ExternalCertificateVerifier::Create<RevocationCheck>(*std::move(context)));
  }
  if (!tls->client_ca_file.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

// gRPC's insecure credentials carry no identity. The local ones add no byte to a connection either.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const std::optional<ServerTls>& tls,
                                                                               uint32_t uid) {
  absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> credentials =
      tls.has_value() ? MakeServerCredentials(tls) : grpc::experimental::LocalServerCredentials(UDS);
  if (credentials.ok()) (*credentials)->SetAuthMetadataProcessor(std::make_shared<UidProcessor>(uid));
  return credentials;
}

}  // namespace sluice
