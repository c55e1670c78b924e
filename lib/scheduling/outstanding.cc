#include "lib/scheduling/outstanding.h"

#include <algorithm>
#include <utility>

#include "sluice/plan.h"

namespace sluice {

Outstanding::Outstanding(const LinkSchedule::Options& options)
    : profile_(options.profile), budget_(options), stall_timers_(options) {}

void Outstanding::SetProfile(const LinkProfile& profile) {
  profile_ = profile;
  budget_.SetProfile(profile);
  stall_timers_.SetProfile(profile);
}

int64_t Outstanding::Cost(int64_t bytes) const {
  return bytes <= 0 ? 0 : BufferCostBytes(profile_, bytes);
}

int64_t Outstanding::CostOfGrant(const Call& call, int64_t bytes) const {
  return Cost(call.progress.outstanding_bytes + bytes) - call.outstanding_cost;
}

void Outstanding::Grant(Call& call, int64_t bytes, TimePoint now) {
  call.progress.outstanding_bytes += bytes;
  Recharge(call, now, false);
}

void Outstanding::GrantEarly(Call& call, int64_t bytes, TimePoint now) {
  call.progress.early_bytes += bytes;
  Grant(call, bytes, now);
}

// In the order in which they were granted. While a call is stalled nothing more is granted to it, so all that is
// outstanding then is early or stalled, and when none of it is, the call is as any other.
void Outstanding::Receive(Call& call, int64_t bytes, TimePoint now) {
  CallProgress& progress = call.progress;
  const int64_t cost_before = call.outstanding_cost;
  progress.received_bytes += bytes;
  progress.outstanding_bytes -= bytes;
  progress.remaining_bytes = std::max<int64_t>(progress.remaining_bytes - bytes, 0);
  progress.early_bytes = std::max<int64_t>(progress.early_bytes - bytes, 0);
  if (progress.outstanding_bytes <= 0) progress.stalled = false;
  Recharge(call, now, true);
  received_bytes_ += cost_before - call.outstanding_cost;
}

void Outstanding::Update(Call& call, TimePoint now) {
  Recharge(call, now, false);
}

void Outstanding::Recharge(Call& call, TimePoint now, bool progress) {
  const int64_t early_cost = Cost(std::min(call.progress.early_bytes, call.progress.outstanding_bytes));
  call.outstanding_cost = Cost(call.progress.outstanding_bytes);
  const int64_t charge = call.header_bytes + (call.progress.stalled ? early_cost : call.outstanding_cost);
  budget_.Charge(charge - std::exchange(call.charged_bytes, charge),
                 early_cost - std::exchange(call.early_charged_bytes, early_cost));
  const int64_t asked = StillToCome(call);
  asked_bytes_ += asked - std::exchange(call.asked_bytes, asked);
  if (call.progress.aborted || charge <= early_cost || !budget_.limited()) {
    stall_timers_.Stop(call);
  } else if (progress || !StallTimers::Runs(call)) {
    stall_timers_.Start(call, now, budget_.link_bytes());
  }
}

int64_t Outstanding::StillToCome(const Call& call) const {
  if (call.phase == Call::Phase::kParked) return 0;
  const CallProgress& progress = call.progress;
  if (call.phase != Call::Phase::kInFlight && !progress.was_ready) return Cost(call.expected_bytes);
  return progress.remaining_bytes > progress.outstanding_bytes ? Cost(progress.remaining_bytes) : call.outstanding_cost;
}

void Outstanding::Release(Call& call, CallEnd end, TimePoint now) {
  stall_timers_.Stop(call);
  const int64_t charged_bytes = std::exchange(call.charged_bytes, 0);
  const int64_t early_bytes = std::exchange(call.early_charged_bytes, 0);
  call.header_bytes = call.outstanding_cost = 0;
  asked_bytes_ -= std::exchange(call.asked_bytes, 0);
  if (end == CallEnd::kAborted && charged_bytes > 0) {
    budget_.ReleaseAborted(now, charged_bytes, early_bytes);
  } else {
    budget_.Charge(-charged_bytes, -early_bytes);
  }
}

Call* Outstanding::TakeStalled(TimePoint now) {
  Call* const call = stall_timers_.FirstStalled(now);
  if (call == nullptr) return nullptr;
  call->progress.stalled = true;
  Recharge(*call, now, false);
  return call;
}

}  // namespace sluice
