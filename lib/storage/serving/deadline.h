#pragma once

#include <grpcpp/server_context.h>

#include "absl/time/time.h"

namespace sluice {

// The time until the deadline of a call that is served, which gRPC gives on the wall clock. Infinite if it has none.
absl::Duration TimeLeft(const grpc::ServerContextBase& context);

// The time that the level below may take for a call of the level above that ends in `left`. The reserve is taken off;
// in it the response travels up, and the level above may ask a replica. 0 if nothing is left.
absl::Duration TimeForLevelBelow(absl::Duration left, absl::Duration reserve);

}  // namespace sluice
