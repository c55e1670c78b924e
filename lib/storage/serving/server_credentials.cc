#include "lib/storage/serving/server_credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include "lib/storage/serving/access_control.h"

namespace sluice {
namespace {

constexpr unsigned int kLookIntervalSeconds = 1;

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const std::optional<ServerTls>& tls) {
  if (!tls.has_value()) return grpc::InsecureServerCredentials();
  // gRPC would start with unusable files, and reject every client.
  if (absl::Status valid = ValidateServerTls(*tls); !valid.ok()) return valid;
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(tls->key_file, tls->certificate_file,
                                                                           tls->client_ca_file, kLookIntervalSeconds));
  options.watch_identity_key_cert_pairs();
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
