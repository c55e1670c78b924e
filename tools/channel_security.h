#pragma once

#include <memory>
#include <optional>
#include <string>

#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "sluice/tls_options.h"

#include "absl/status/statusor.h"

namespace sluice {

// The security of a tool's channels: TLS, or none, which is the default. A plain value.
class ChannelSecurity {
 public:
  ChannelSecurity() : credentials_(grpc::InsecureChannelCredentials()) {}
  // Reads the files once, since no tool runs longer than a certificate is valid. Without `tls`, TLS is off. Returns
  // NotFound if a file cannot be read; the flags have checked whether it parses.
  static absl::StatusOr<ChannelSecurity> Create(const std::optional<TlsOptions>& tls);

  const std::shared_ptr<grpc::ChannelCredentials>& credentials() const { return credentials_; }
  const std::optional<TlsOptions>& tls() const { return tls_; }
  // Adds the name in the server's certificate if it differs from the host.
  void AddTo(grpc::ChannelArguments& arguments) const;

 private:
  std::shared_ptr<grpc::ChannelCredentials> credentials_;
  std::optional<TlsOptions> tls_;
};

}  // namespace sluice
