#include "lib/scheduling/stall_timers.h"

#include <algorithm>
#include <cmath>

#include "absl/time/time.h"
#include "lib/scheduling/saturating_add.h"

namespace sluice {

StallTimers::StallTimers(const ScheduleOptions& options) : timeout_(absl::ToChronoNanoseconds(options.stall_timeout)) {
  SetProfile(options.profile);
}

void StallTimers::SetProfile(const LinkProfile& profile) {
  rtt_ns_ = absl::ToDoubleNanoseconds(profile.propagation_rtt);
  byte_ns_ = 1e9 / profile.capacity_bytes_per_second;
}

void StallTimers::Start(Call& call, TimePoint now, int64_t budget_bytes) {
  Stop(call);
  call.stalls_at = SaturatingAdd(SaturatingAdd(now, timeout_), TransferTime(call, budget_bytes));
  calls_.insert(calls_.end(), call);
}

void StallTimers::Stop(Call& call) {
  if (call.StallHook::is_linked()) calls_.erase(calls_.iterator_to(call));
}

Call* StallTimers::FirstStalled(TimePoint now) {
  return calls_.empty() || calls_.begin()->stalls_at > now ? nullptr : &*calls_.begin();
}

// The link is shared: in the time in which everything in flight drains once, the call receives the bytes that it is
// charged for. Rejected: its own bytes at the full rate of the link. A response that shares the link would then count
// as stalled.
std::chrono::nanoseconds StallTimers::TransferTime(const Call& call, int64_t budget_bytes) const {
  const auto in_flight_bytes = static_cast<double>(std::max(budget_bytes, call.charged_bytes));
  constexpr double kMaxNs = 1e18;
  return std::chrono::nanoseconds(std::llround(std::min(rtt_ns_ + in_flight_bytes * byte_ns_, kMaxNs)));
}

}  // namespace sluice
