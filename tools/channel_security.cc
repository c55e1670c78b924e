#include "tools/channel_security.h"

#include <fstream>
#include <iostream>
#include <iterator>

#include <grpc/support/log.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

absl::Status ReadInto(std::string& text, const char* field, const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  std::ifstream file(path, std::ios::binary);
  text.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  if (file && !text.empty()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(field, ": \"", path, "\" cannot be read, or is empty"));
}

// Drops gRPC's log lines about failed handshakes; ExplainUnreachable reports the reason.
void LogOfGrpc(gpr_log_func_args* line) {
  if (absl::StrContains(line->file, "ssl_transport_security")) return;
  std::cerr << "gRPC: " << line->message << std::endl;
}

}  // namespace

absl::StatusOr<ChannelSecurity> ChannelSecurity::Create(const std::optional<TlsOptions>& tls) {
  ChannelSecurity security;
  if (!tls.has_value()) return security;
  grpc::SslCredentialsOptions options;  // no root certificates: gRPC uses the system's
  absl::Status status = ReadInto(options.pem_root_certs, "tls.ca", tls->ca_file);
  status.Update(ReadInto(options.pem_cert_chain, "tls.certificate", tls->certificate_file));
  status.Update(ReadInto(options.pem_private_key, "tls.key", tls->key_file));
  if (!status.ok()) return status;
  security.credentials_ = grpc::SslCredentials(options);
  security.tls_ = tls;
  gpr_set_log_function(&LogOfGrpc);
  return security;
}

void ChannelSecurity::AddTo(grpc::ChannelArguments& arguments) const {
  if (tls_.has_value() && !tls_->server_name.empty()) arguments.SetSslTargetNameOverride(tls_->server_name);
}

}  // namespace sluice
