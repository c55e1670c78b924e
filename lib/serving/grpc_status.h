#pragma once

#include <string>

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace sluice {

// The numbers of absl's codes are those of gRPC's.
inline grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

}  // namespace sluice
