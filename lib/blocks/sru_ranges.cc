#include "lib/blocks/sru_ranges.h"

#include <algorithm>

#include "sluice/plan.h"

#include "lib/rpc/call_group.h"

namespace sluice {
namespace {

constexpr int64_t kAnswersInFlight = 3;

}  // namespace

int64_t RangeBytes(const LinkSchedule::Options& options, int64_t budget_bytes, int64_t sru_bytes) {
  int64_t whole = std::min(sru_bytes, kMaxRangeBytes);
  if (options.discipline == Discipline::kUnscheduled) return whole;
  const LinkProfile& profile = options.profile;
  if (const auto& charged_bytes = options.max_in_flight_per_call_bytes; charged_bytes.has_value()) {
    whole = std::min(whole, std::max(*charged_bytes - kRpcOverheadBytes, profile.packet_payload_bytes));
  }
  // Grants keep a third of the budget for headers, and what waits at a worker follows a grant at once.
  const int64_t share = budget_bytes / kAnswersInFlight;
  if (BufferCostBytes(profile, whole + kRpcOverheadBytes) <= share) return whole;
  const int64_t full_packets = std::max<int64_t>(share / profile.frame_bytes, 1);
  return std::clamp<int64_t>(full_packets * profile.packet_payload_bytes - kRpcOverheadBytes, 1, whole);
}

}  // namespace sluice
