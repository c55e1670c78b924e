#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/tcp/socket_diag.h"
#include "tools/sluice_calibrate/probe_connections.h"
#include "tools/sluice_calibrate/prober.h"

namespace sluice {

struct ProbeLoopResult {
  LoopSample sample;                         // what was lost is not counted yet
  std::vector<absl::Duration> answer_times;  // from the request to the whole answer
};

// Runs one closed loop over connections, of which there must be at least as many as answers in flight, and returns when
// the last answer has come. Returns Cancelled if `interrupted` says so, and the errors of workers and of the kernel's
// counters.
absl::StatusOr<ProbeLoopResult> RunProbeLoop(const ProbeConnections& connections, const ClosedLoop& loop,
                                             SocketDiag& socket_diag, const std::function<bool()>& interrupted);

}  // namespace sluice
