#pragma once

#include <string>

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace sluice {

// Converts a status; the codes of absl and gRPC have the same numbers.
inline grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

}  // namespace sluice
