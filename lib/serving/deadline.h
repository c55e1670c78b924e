#pragma once

#include <grpcpp/server_context.h>

#include "absl/time/time.h"

namespace sluice {

// The time until the deadline of a call that is served: gRPC gives it on the wall clock. Infinite: it has none.
absl::Duration TimeLeft(const grpc::ServerContextBase& context);

// How long the level below may take for a call of the level above, which ends in `left`: less the reserve, in which the
// answer travels up and a replica may be asked. 0: nothing is left.
absl::Duration TimeForLevelBelow(absl::Duration left, absl::Duration reserve);

}  // namespace sluice
