#pragma once

#include <grpcpp/server_context.h>

#include "absl/time/time.h"

namespace sluice {

// Returns the time until the deadline of a served call, which gRPC gives in wall-clock time. Infinite without a
// deadline.
absl::Duration TimeLeft(const grpc::ServerContextBase& context);

// Returns the time that the level below may take, if the call of the level above ends in `left`. It subtracts the
// reserve, in which the response travels up and the level above may call a replica. Returns 0 if nothing is left.
absl::Duration TimeForLevelBelow(absl::Duration left, absl::Duration reserve);

}  // namespace sluice
