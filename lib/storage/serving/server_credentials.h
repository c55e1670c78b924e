#pragma once

#include <memory>
#include <optional>

#include <grpcpp/security/server_credentials.h>

#include "absl/status/statusor.h"
#include "lib/tls/server_tls.h"

namespace sluice {

// Makes the credentials with which gRPC serves by TLS 1.2 or newer, or in the clear if there is no `tls`. gRPC looks at
// the files each second. Connections that are made after a change use the new files; existing ones keep what they were
// made with. Returns the errors of ValidateServerTls.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const std::optional<ServerTls>& tls);

}  // namespace sluice
