#pragma once

#include <memory>
#include <optional>
#include <string>

#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "sluice/tls_options.h"

#include "absl/status/statusor.h"

namespace sluice {

// How the channels of a tool are secured: by TLS, or not at all, which is the default. A plain value.
class ChannelSecurity {
 public:
  ChannelSecurity() : credentials_(grpc::InsecureChannelCredentials()) {}
  // Reads the files once, since a tool does not run for as long as a certificate is valid. Without options there is no
  // TLS. Returns NotFound if a file cannot be read; whether it parses was checked with the flags.
  static absl::StatusOr<ChannelSecurity> Create(const std::optional<TlsOptions>& tls);

  const std::shared_ptr<grpc::ChannelCredentials>& credentials() const { return credentials_; }
  const std::optional<TlsOptions>& tls() const { return tls_; }
  // Adds the name that the server's certificate must bear if it is not that of the host.
  void AddTo(grpc::ChannelArguments& arguments) const;

 private:
  std::shared_ptr<grpc::ChannelCredentials> credentials_;
  std::optional<TlsOptions> tls_;
};

}  // namespace sluice
