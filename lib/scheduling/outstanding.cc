#include "lib/scheduling/outstanding.h"

#include <algorithm>
#include <utility>

#include "sluice/plan.h"

#include "absl/time/time.h"
#include "lib/scheduling/block_queue.h"

namespace sluice {

Outstanding::Outstanding(const ScheduleOptions& options, BlockQueue& blocks, Budget& budget, WorkerLaps& laps)
    : blocks_(blocks), budget_(budget), laps_(laps), stall_timers_(options) {
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
  if (progress.early_bytes == 0) progress.late = false;
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
  const int64_t late_cost = call.progress.late ? early_cost : 0;
  late_bytes_ += late_cost - std::exchange(call.late_bytes, late_cost);
  SetCharge(call,
            {.all = (call.progress.stalled ? early_cost : call.outstanding_cost) - late_cost,
             .early = early_cost - late_cost,
             .owed = OwedBytes(call)},
            now, progress);
  SetOwes(call, Owes(call), now);
  CountInBlock(call);
  SetTimer(call, now, progress);
}

void Outstanding::CountInBlock(Call& call) {
  QueuedBlock& block = *call.block;
  const int64_t asked = StillToCome(call);
  const int64_t known = call.progress.was_ready ? asked : 0;
  const int64_t claimed = Cost(call.claimed());
  block.remaining_bytes += asked - std::exchange(call.asked_bytes, asked);
  block.known_bytes += known - std::exchange(call.known_bytes, known);
  block.claimed_bytes += claimed - std::exchange(call.claimed_bytes, claimed);
  const bool unsized = call.unsized();
  block.unsized_calls += static_cast<int64_t>(unsized) - std::exchange(call.counts_as_unsized, unsized);
  // An abandoned response stops no requests: it ends with a reset, and those are rationed.
  const bool given_up = call.progress.aborted || call.progress.unwanted;
  const bool waits_at_worker = !given_up && !block.ahead && !call.turn_of_tunnel();
  const int64_t ready = waits_at_worker ? call.rest() : 0;
  blocks_.CountReady(block, ready - std::exchange(call.ready_bytes, ready));
}

// The timer of early bytes starts with their grant. That of other bytes starts with them, and again after progress.
void Outstanding::SetTimer(Call& call, TimePoint now, bool progress) {
  const bool times_early = call.charged_bytes <= call.early_charged_bytes;
  if (call.progress.aborted || !budget_.limited() || call.charged_bytes == 0) {
    stall_timers_.Stop(call);
  } else if (progress || !StallTimers::Runs(call) || call.times_early != times_early) {
    stall_timers_.Start(call, now, budget_.link_bytes());
  }
  call.times_early = times_early;
}

void Outstanding::SetCharge(Call& call, const Charges& charges, TimePoint now, bool progress) {
  const int64_t more = charges.all - std::exchange(call.charged_bytes, charges.all);
  const int64_t more_early = charges.early - std::exchange(call.early_charged_bytes, charges.early);
  const int64_t more_owed = charges.owed - std::exchange(call.owed_bytes, charges.owed);
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
  late_bytes_ -= std::exchange(call.late_bytes, 0);
  call.block->remaining_bytes -= std::exchange(call.asked_bytes, 0);
  call.block->known_bytes -= std::exchange(call.known_bytes, 0);
  call.block->unsized_calls -= static_cast<int64_t>(std::exchange(call.counts_as_unsized, false));
  blocks_.CountReady(*call.block, -std::exchange(call.ready_bytes, 0));
  SetCharge(call, {}, now, false);
  SetOwes(call, false, now);
  if (end == CallEnd::kAborted && charged_bytes > 0) budget_.DrainAborted(now, charged_bytes);
}

void Outstanding::Disclaim(Call& call) {
  call.block->claimed_bytes -= std::exchange(call.claimed_bytes, 0);
}

Outstanding::Overdue Outstanding::TakeOverdue(TimePoint now) {
  Call* const call = stall_timers_.FirstStalled(now);
  if (call == nullptr) return {};
  const bool stalled = !call->times_early;
  if (stalled) {
    call->progress.stalled = true;
    ++call->worker->stalled_calls;
    laps_.OnStall(*call->worker, now);
  } else {
    call->progress.late = true;
  }
  Recharge(*call, now, false);
  return {call, stalled};
}

}  // namespace sluice
