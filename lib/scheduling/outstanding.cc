#include "lib/scheduling/outstanding.h"

#include <algorithm>
#include <utility>

#include "sluice/plan.h"

#include "absl/time/time.h"
#include "lib/scheduling/block_queue.h"

namespace sluice {

Outstanding::Outstanding(const ScheduleOptions& options, Budget& budget, WorkerLaps& laps)
    : budget_(budget), laps_(laps), stall_timers_(options) {
  SetProfile(options.profile);
}

void Outstanding::SetProfile(const LinkProfile& profile) {
  profile_ = profile;
  stall_timers_.SetProfile(profile);
  pause_ = absl::ToChronoNanoseconds(absl::FromChrono(WorkerLoad::kPause) + profile_.propagation_rtt);
}

int64_t Outstanding::Cost(int64_t bytes) const {
  return bytes <= 0 ? 0 : BufferCostBytes(profile_, bytes);
}

int64_t Outstanding::CostOfGrant(const Call& call, int64_t bytes) const {
  return Cost(call.progress.outstanding_bytes + bytes) - call.outstanding_cost;
}

void Outstanding::Grant(Call& call, int64_t bytes, TimePoint now) {
  const int64_t charged_before = call.charged_bytes;
  call.progress.outstanding_bytes += bytes;
  Recharge(call, now, false);
  budget_.Pace(call.charged_bytes - charged_before);
}

void Outstanding::GrantEarly(Call& call, int64_t bytes, TimePoint now) {
  call.progress.early_bytes += bytes;
  Grant(call, bytes, now);
}

// Bytes arrive in the order in which they were granted. A stalled call gets no further grant, so all of its outstanding
// bytes are early or stalled. Once none is left, the call is like any other.
void Outstanding::Receive(Call& call, int64_t bytes, TimePoint now) {
  CallProgress& progress = call.progress;
  progress.received_bytes += bytes;
  progress.outstanding_bytes -= bytes;
  progress.remaining_bytes = std::max<int64_t>(progress.remaining_bytes - bytes, 0);
  progress.early_bytes = std::max<int64_t>(progress.early_bytes - bytes, 0);
  if (progress.outstanding_bytes <= 0) EndStall(call);
  Hear(*call.worker, now);
  Recharge(call, now, true);
}

void Outstanding::Hear(QueuedWorker& worker, TimePoint now) {
  if (worker.owing_calls > 0 && now - worker.owed_since >= pause_) ++worker.pauses;
  worker.owed_since = now;
}

void Outstanding::Update(Call& call, TimePoint now) {
  Recharge(call, now, false);
}

void Outstanding::Recharge(Call& call, TimePoint now, bool progress) {
  const int64_t early_cost = Cost(std::min(call.progress.early_bytes, call.progress.outstanding_bytes));
  const int64_t cost_before = std::exchange(call.outstanding_cost, Cost(call.progress.outstanding_bytes));
  if (progress) laps_.OnReceived(cost_before - call.outstanding_cost);
  const int64_t charge = call.progress.stalled ? early_cost : call.outstanding_cost;
  SetCharge(call, charge, early_cost, OwedBytes(call), now, progress);
  SetOwes(call, Owes(call), now);
  const int64_t asked = StillToCome(call);
  call.block->remaining_bytes += asked - std::exchange(call.asked_bytes, asked);
  if (call.progress.aborted || charge <= early_cost || !budget_.limited()) {
    stall_timers_.Stop(call);
  } else if (progress || !StallTimers::Runs(call)) {
    stall_timers_.Start(call, now, budget_.link_bytes());
  }
}

void Outstanding::SetCharge(Call& call, int64_t charge, int64_t early, int64_t owed, TimePoint now, bool progress) {
  const int64_t more = charge - std::exchange(call.charged_bytes, charge);
  const int64_t more_early = early - std::exchange(call.early_charged_bytes, early);
  const int64_t more_owed = owed - std::exchange(call.owed_bytes, owed);
  budget_.Charge(more, more_early);
  QueuedWorker& worker = *call.worker;
  worker.charged_bytes += more - more_early;
  if (call.block->ahead) budget_.ChargeHandshake(more);
  worker.owed_bytes += more_owed;
  laps_.Update(worker, more_owed, progress, now);
}

void Outstanding::EndStall(Call& call) {
  if (std::exchange(call.progress.stalled, false)) --call.worker->stalled_calls;
}

bool Outstanding::Owes(const Call& call) {
  const CallProgress& progress = call.progress;
  return progress.was_ready && !progress.aborted && progress.outstanding_bytes > 0 && progress.remaining_bytes > 0;
}

void Outstanding::SetOwes(Call& call, bool owes, TimePoint now) {
  if (std::exchange(call.owes, owes) == owes) return;
  if (owes && call.worker->owing_calls == 0) call.worker->owed_since = now;
  call.worker->owing_calls += owes ? 1 : -1;
}

int64_t Outstanding::OwedBytes(const Call& call) const {
  if (!Owes(call) || call.progress.stalled) return 0;
  return Cost(std::min(call.progress.outstanding_bytes, call.progress.remaining_bytes));
}

int64_t Outstanding::StillToCome(const Call& call) const {
  if (call.phase == Call::Phase::kParked) return 0;
  const CallProgress& progress = call.progress;
  if (call.phase != Call::Phase::kInFlight && !progress.was_ready) return Cost(call.expected_bytes);
  return progress.remaining_bytes > progress.outstanding_bytes ? Cost(progress.remaining_bytes) : call.outstanding_cost;
}

void Outstanding::Release(Call& call, CallEnd end, TimePoint now) {
  stall_timers_.Stop(call);
  const int64_t charged_bytes = call.charged_bytes;
  EndStall(call);
  call.outstanding_cost = 0;
  call.block->remaining_bytes -= std::exchange(call.asked_bytes, 0);
  SetCharge(call, 0, 0, 0, now, false);
  SetOwes(call, false, now);
  if (end == CallEnd::kAborted && charged_bytes > 0) budget_.DrainAborted(now, charged_bytes);
}

Call* Outstanding::TakeStalled(TimePoint now) {
  Call* const call = stall_timers_.FirstStalled(now);
  if (call == nullptr) return nullptr;
  call->progress.stalled = true;
  ++call->worker->stalled_calls;
  laps_.OnStall(*call->worker, now);
  Recharge(*call, now, false);
  return call;
}

}  // namespace sluice
