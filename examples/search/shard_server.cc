#include "shard_server.h"

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include "sluice/tls_options.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace sluice::examples::search {
namespace {

constexpr auto kDrainTimeout = std::chrono::seconds(10);
constexpr unsigned int kLookIntervalSeconds = 1;

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> Credentials(const ShardServerOptions& files) {
  if (files.certificate_file.empty() && files.key_file.empty() && files.client_ca_file.empty())
    return grpc::InsecureServerCredentials();
  if (files.certificate_file.empty() || files.key_file.empty())
    return absl::InvalidArgumentError("tls_certificate: a server needs --tls-certificate and --tls-key");
  // gRPC would start with unusable files, and reject every client.
  const TlsOptions checked = {.ca_file = files.client_ca_file,
                              .certificate_file = files.certificate_file,
                              .key_file = files.key_file,
                              .server_name = {}};
  if (absl::Status valid = ValidateTls(checked); !valid.ok()) return valid;
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(files.key_file, files.certificate_file,
                                                                           files.client_ca_file, kLookIntervalSeconds));
  options.watch_identity_key_cert_pairs();
  if (!files.client_ca_file.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

// Renames a complete file: a program that waits for the file can read the address as soon as the file exists.
absl::Status WriteReadyFile(const std::string& path, const std::string& address) {
  if (path.empty()) return absl::OkStatus();
  const std::string partial = path + ".partial";
  std::ofstream(partial) << address << std::endl;
  if (std::rename(partial.c_str(), path.c_str()) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("ready_file: cannot write ", path));
}

}  // namespace

void AddShardServerFlags(CLI::App& app, ShardServerOptions& options) {
  app.add_option("--listen", options.listen, "Address to serve on, host:port; port 0 takes a free one")->required();
  app.add_option("--ready-file", options.ready_file, "File to write the bound address to when the server serves");
  app.add_option("--tls-certificate", options.certificate_file, "PEM file of the server's certificate chain");
  app.add_option("--tls-key", options.key_file, "PEM file of the server's private key");
  app.add_option("--tls-client-ca", options.client_ca_file, "Serve only clients with a certificate of this authority");
}

sigset_t BlockTerminationSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

absl::Status ServeShards(grpc::Service& service, const ShardServerOptions& options, const sigset_t& termination,
                         const std::string& what) {
  const auto credentials = Credentials(options);
  if (!credentials.ok()) return credentials.status();
  grpc::EnableDefaultHealthCheckService(true);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // fail if a different server has the port
  builder.AddListeningPort(options.listen, *credentials, &port);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server || port == 0) return absl::UnavailableError(absl::StrCat("listen: cannot serve on ", options.listen));
  const std::string address = absl::StrCat(options.listen.substr(0, options.listen.rfind(':') + 1), port);
  std::cerr << "serving " << what << " on " << address
            << (options.certificate_file.empty() ? " without TLS: anybody may read the index" : "") << std::endl;
  if (absl::Status written = WriteReadyFile(options.ready_file, address); !written.ok()) return written;
  int signal = 0;
  sigwait(&termination, &signal);
  server->Shutdown(std::chrono::system_clock::now() + kDrainTimeout);
  return absl::OkStatus();
}

}  // namespace sluice::examples::search
