#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include <grpcpp/security/server_credentials.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/tls/server_tls.h"

namespace sluice {

// Creates the credentials with which gRPC serves over TLS 1.2 or newer, or in plaintext without `tls`. gRPC checks the
// files every second. Connections made after a change use the new files; existing connections keep the old ones.
// Calls `on_refused`, if it is not null, with the reason for which a client's certificate is refused, on any thread of
// gRPC. Returns the errors of ValidateServerTls.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const std::optional<ServerTls>& tls, std::function<void(const absl::Status&)> on_refused);

// The same for connections of one user on Unix sockets: AccessControl sees the user.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const std::optional<ServerTls>& tls, uint32_t uid, std::function<void(const absl::Status&)> on_refused);

}  // namespace sluice
