#pragma once

#include <memory>
#include <optional>

#include <grpcpp/security/server_credentials.h>

#include "absl/status/statusor.h"
#include "lib/tls/server_tls.h"

namespace sluice {

// What gRPC needs to serve with TLS 1.2 or newer, or without TLS where there is none. The files are looked at each
// second; connections that are made after a change have what is in them then, and those that stand keep what they were
// made with. The errors of ValidateServerTls.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const std::optional<ServerTls>& tls);

}  // namespace sluice
