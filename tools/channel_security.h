#pragma once

#include <memory>
#include <optional>
#include <string>

#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "sluice/tls_options.h"

#include "absl/status/statusor.h"

namespace sluice {

// How the channels of a tool are secured: by TLS, or not at all, which is what the default is. A plain value.
class ChannelSecurity {
 public:
  ChannelSecurity() : credentials_(grpc::InsecureChannelCredentials()) {}
  // Reads the files, once: a tool does not run for as long as a certificate is good. Absent: no TLS. NotFound: a file
  // cannot be read; that it parses was checked with the flags.
  static absl::StatusOr<ChannelSecurity> Create(const std::optional<TlsOptions>& tls);

  const std::shared_ptr<grpc::ChannelCredentials>& credentials() const { return credentials_; }
  const std::optional<TlsOptions>& tls() const { return tls_; }
  // The name that the server's certificate has to bear, where it is another one than that of the host.
  void AddTo(grpc::ChannelArguments& arguments) const;

 private:
  std::shared_ptr<grpc::ChannelCredentials> credentials_;
  std::optional<TlsOptions> tls_;
};

}  // namespace sluice
