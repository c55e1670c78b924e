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
  LoopSample sample;                         // without the lost packets, which are counted later
  std::vector<absl::Duration> answer_times;  // from the request to the complete response
};

// Runs one closed loop, and returns when the last response has arrived. There must be at least as many connections as
// responses in flight. Returns Cancelled if `interrupted` returns true, and the errors of workers and of the kernel's
// counters.
absl::StatusOr<ProbeLoopResult> RunProbeLoop(const ProbeConnections& connections, const ClosedLoop& loop,
                                             SocketDiag& socket_diag, const std::function<bool()>& interrupted);

}  // namespace sluice
