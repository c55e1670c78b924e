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

// Decides about the certificates of clients. gRPC's own check of 1.51 reports no reason, and reads each revocation list
// once. There is one for each server. Thread-safe.
class ClientCheck final : public grpc::experimental::ExternalCertificateVerifier {
 public:
  ClientCheck(std::shared_ptr<TlsContext> context, std::function<void(const absl::Status&)> on_refused)
      : context_(std::move(context)), on_refused_(std::move(on_refused)) {}

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* status) override {
    const auto view = [](grpc::string_ref text) { return absl::string_view(text.data(), text.size()); };
    const absl::Status valid =
        CheckClientCertificate(*context_->Current(), view(request->peer_cert()), view(request->peer_cert_full_chain()));
    if (!valid.ok()) {
      *status = ToGrpc(valid);
      if (on_refused_ != nullptr) on_refused_(valid);
    }
    return true;  // it is decided
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest*) override {}

 private:
  const std::shared_ptr<TlsContext> context_;
  const std::function<void(const absl::Status&)> on_refused_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const std::optional<ServerTls>& tls, std::function<void(const absl::Status&)> on_refused) {
  if (!tls.has_value()) return grpc::InsecureServerCredentials();
  // gRPC would start with unusable files, and reject every client.
  if (absl::Status valid = ValidateServerTls(*tls); !valid.ok()) return valid;
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(tls->key_file, tls->certificate_file,
                                                                           tls->client_ca_file, kLookIntervalSeconds));
  options.watch_identity_key_cert_pairs();
  if (!tls->client_ca_file.empty()) {
    absl::StatusOr<std::shared_ptr<TlsContext>> context = TlsContext::CreateForListener({.files = *tls});
    if (!context.ok()) return context.status();
    options.set_certificate_verifier(grpc::experimental::ExternalCertificateVerifier::Create<ClientCheck>(
        *std::move(context), std::move(on_refused)));
    options.watch_root_certs();  // their names are in the request for a certificate
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_BUT_DONT_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

// gRPC's insecure credentials carry no identity. The local ones add no byte to a connection either.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const std::optional<ServerTls>& tls, uint32_t uid, std::function<void(const absl::Status&)> on_refused) {
  absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> credentials =
      tls.has_value() ? MakeServerCredentials(tls, std::move(on_refused))
                      : grpc::experimental::LocalServerCredentials(UDS);
  if (credentials.ok()) (*credentials)->SetAuthMetadataProcessor(std::make_shared<UidProcessor>(uid));
  return credentials;
}

}  // namespace sluice
