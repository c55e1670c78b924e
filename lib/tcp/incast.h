#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "lib/tcp/stall_watch.h"
#include "lib/tcp/tcp_ext.h"

namespace sluice {

// Whether the responses of a host collapse in TCP incast, by what its kernel reports. Pure functions of plain values.

enum class IncastVerdict { kNo, kYes, kNotSure };

enum class IncastReason {
  kAtOnce,            // yes: connections stall together, again and again
  kNoStalls,          // no
  kOneHost,           // no: almost all stalls are of one peer
  kOneAtATime,        // no: connections stall, but not together
  kFewStalls,         // not sure: too few to tell the two apart
  kFewConnections,    // not sure: too few to stall together
  kLateResponses,     // not sure: responses come a retransmission timeout later than usual, together
  kBusyLink,          // not sure: connections stall together, but the link was busy: a long queue looks the same
  kShortConnections,  // not sure: the kernel counted timeouts of connections that closed between two samples
  kLittleTraffic,     // not sure
};

// The result of the watch of one flow.
struct FlowFinding {
  TcpFlow flow;
  IncastVerdict verdict = IncastVerdict::kNotSure;
  IncastReason reason = IncastReason::kLittleTraffic;
  size_t stalled_connections = 0;
  size_t moments = 0;       // times at which connections stalled together
  size_t most_stalled = 0;  // connections that stalled together, at the worst moment
  absl::Duration median_stall;
  absl::Duration longest_stall;
  double stalled_bytes_per_second = 0;                 // carried by the flow while connections stalled
  std::optional<boost::asio::ip::address> worst_host;  // with the most stalls
};

struct IncastDiagnosis {
  IncastVerdict verdict = IncastVerdict::kNotSure;
  IncastReason reason = IncastReason::kLittleTraffic;
  // The flows with traffic worth a verdict. The first one decided, unless the reason is kShortConnections or
  // kLittleTraffic.
  std::vector<FlowFinding> findings;
};

FlowFinding DiagnoseFlow(TcpFlow flow);

// `counted` are the counters of the host during the watch.
IncastDiagnosis DiagnoseIncast(std::vector<TcpFlow> flows, const TcpExt& counted);

const char* IncastVerdictName(IncastVerdict verdict);  // "yes", "no", "not_sure"
const char* IncastReasonName(IncastReason reason);     // "at_once"

}  // namespace sluice
