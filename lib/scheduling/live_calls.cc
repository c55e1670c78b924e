#include "lib/scheduling/live_calls.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "lib/scheduling/schedule_invariants.h"

namespace sluice {

namespace {

bool Grants(const ScheduleOptions& options) {
  return options.policy == SchedulePolicy::kGrants;
}

bool HasShares(const ScheduleOptions& options) {
  return Grants(options) || options.policy == SchedulePolicy::kRolling;
}

// A mean over about the last eight responses of the worker. A worker whose headers are large is asked for less at a
// time, and no other worker is. Rejected: one mean for all workers. 200 errors with 6 KB of details a second from one
// worker then took 57 % of the others' goodput.
void ObserveHeaders(Call& call) {
  constexpr double kWeight = 1.0 / 8;
  const auto bytes = static_cast<double>(std::exchange(call.progress.header_wire_bytes, 0));
  double& mean_bytes = call.worker->header_wire_bytes;
  if (bytes >= 1) mean_bytes += (mean_bytes > 0 ? kWeight : 1) * (bytes - mean_bytes);
}

// Charges the budget by `charge`, which is a grant, and checks that it had room.
template <class Charge>
void ChargeGrant(Budget& budget, Breaches& breaches, Charge charge) {
  GrantSums sums{.limited = budget.limited(), .alone = budget.idle(), .charged_before_bytes = budget.in_flight_bytes()};
  charge();
  sums.charged_bytes = budget.in_flight_bytes();
  sums.room_bytes = budget.room_bytes();
  CheckGrant(sums, breaches);
}

}  // namespace

LiveCalls::LiveCalls(const ScheduleOptions& options, Breaches& breaches)
    : options_(options),
      breaches_(breaches),
      blocks_(options.class_count()),
      workers_(HasShares(options), options.class_count(), blocks_, laps_, outstanding_, queue_, sent_),
      budget_(options),
      laps_(budget_),
      outstanding_(options, blocks_, budget_, laps_),
      plan_bytes_(budget_.plan_bytes()),
      queue_(options.class_count()),
      sent_(options, budget_),
      order_(options, blocks_, workers_, queue_, sent_, budget_),
      observer_(options.profile) {}

void LiveCalls::OnBudgetChanged(TimePoint now) {
  laps_.OnBudgetChanged();
  sent_.OnBudgetChanged();
  order_.OnWeightsChanged();
  blocks_.SetAllChanged();
  if (std::exchange(plan_bytes_, budget_.plan_bytes()) == budget_.plan_bytes()) return;
  for (QueuedBlock* block = blocks_.oldest(); block != nullptr; block = blocks_.next(*block))
    order_.Update(*block, now);
  workers_.LookAtAll(now);
}

// Calls that are out keep what they were granted. Without grants a call that is sent waits for nothing: if it is ready,
// its response has a turn, otherwise it will have one.
void LiveCalls::OnOptionsChanged(SchedulePolicy policy_before, TimePoint now) {
  budget_.SetOptions(options_);
  outstanding_.SetProfile(options_.profile);
  sent_.SetProfile(options_.profile);
  observer_.SetProfile(options_.profile);
  OnBudgetChanged(now);
  if (options_.policy == policy_before) return;
  if (budget_.limited()) observer_.Stop(now);
  order_.OnPolicyChanged();
  workers_.SetBounded(HasShares(options_), now);
  for (QueuedBlock* block = blocks_.oldest(); block != nullptr; block = blocks_.next(*block)) {
    while (!Grants(options_) && !block->sent.empty()) {
      Call& call = block->sent.front();
      sent_.Remove(call);
      blocks_.Move(call, Phase::kInFlight);
    }
    while (!Grants(options_) && !block->ready.empty()) blocks_.Move(block->ready.front(), Phase::kInFlight);
    for (Call& call : block->in_flight) Settle(call, now);
    order_.Update(*block, now);
  }
  workers_.LookAtAll(now);
}

CallId LiveCalls::Queue(QueuedBlock& block, const CallRequest& request, bool opens_slot, TimePoint now) {
  Call& call = calls_.Acquire();
  call.tag = request.tag;
  call.expected_bytes = std::max<int64_t>(request.response_bytes, 1);
  call.window_bytes = request.window_bytes;
  call.opens_slot = opens_slot;
  call.may_idle = request.may_idle;
  call.worker = block.ahead ? &workers_.handshakes() : &workers_.Of(request.worker);
  ++call.worker->users;
  ++submitted_;
  if (call.turn_of_tunnel()) {
    ++call.worker->out_calls;
    call.progress = {.was_ready = true, .remaining_bytes = call.expected_bytes, .sent_at = now};
    call.place = ++last_message_;
    blocks_.Push(block, call, Phase::kInFlight);
    Settle(call, now);
  } else {
    blocks_.Push(block, call, request.parked ? Phase::kParked : Phase::kWaiting);
    outstanding_.Update(call, now);
    order_.Update(block, now);
  }
  return call.id;
}

void LiveCalls::Unpark(Call& call, TimePoint now) {
  blocks_.Move(call, Phase::kWaiting);
  outstanding_.Update(call, now);
  order_.Update(*call.block, now);
}

void LiveCalls::Send(Call& call, int64_t bytes, TimePoint now) {
  workers_.LeaveWaiting(call);
  order_.OnSent(call);
  ++call.block->sent_requests;
  ++call.worker->out_calls;
  call.progress.sent_at = now;
  call.header_bytes = sent_.usual_header_bytes();
  call.large_header_bytes = sent_.LargeHeaderBytes(*call.worker);
  call.progress.unbounded = !budget_.limited();
  if (Grants(options_) && bytes == 0) {
    blocks_.Move(call, Phase::kSent);
    sent_.Add(call, now);
    if (call.may_idle || call.worker->early_debt > 0) sent_.KeepFromEarly(call);
    order_.Update(*call.block, now);
    workers_.LookAt(*call.worker, now);
    return;
  }
  GrantUnready(call, bytes, now);
  if (budget_.limited() || call.block->ahead) return;
  observer_.OnBegin(now, call.observed, call.worker->id, call.charged_bytes, budget_.in_flight_bytes());
}

void LiveCalls::GrantEarly(Call& call, int64_t bytes, TimePoint now) {
  sent_.Remove(call);
  GrantUnready(call, bytes, now);
}

void LiveCalls::GrantUnready(Call& call, int64_t bytes, TimePoint now) {
  // Unscheduled grants without a bound, so count only the expected bytes as in flight.
  const int64_t granted_bytes = std::min(bytes, call.expected_bytes);
  order_.OnGranted(call, outstanding_.Cost(granted_bytes));
  blocks_.Move(call, Phase::kInFlight);
  ChargeGrant(budget_, breaches_, [&] {
    if (Grants(options_) && !call.block->ahead) {
      outstanding_.GrantEarly(call, granted_bytes, now);
    } else {
      outstanding_.Grant(call, granted_bytes, now);
    }
  });
  Settle(call, now);
}

void LiveCalls::TakeReady(Call& call, int64_t remaining_bytes, int64_t withheld_bytes, TimePoint now) {
  CallProgress& progress = call.progress;
  const bool first = !std::exchange(progress.was_ready, true);
  // Only the first OnReady is news from the worker. Later ones may only mean that the caller has more room.
  if (first) ObserveReady(call, now);
  progress.remaining_bytes = remaining_bytes;
  if (progress.unbounded) progress.outstanding_bytes = remaining_bytes + withheld_bytes;
  if (call.phase == Phase::kSent) {
    sent_.Remove(call);
    blocks_.Move(call, Phase::kReady);
  }
  if (call.phase == Phase::kReady && (call.rest() == 0 || progress.unwanted)) blocks_.Move(call, Phase::kInFlight);
  if (call.turn == Call::Turn::kNone) call.place = ++last_message_;
  const int64_t expected_cost = call.charged_bytes;
  Settle(call, now);
  if (budget_.limited() || call.block->ahead) return;
  const int64_t more_bytes = call.charged_bytes - expected_cost;
  if (!call.observed.observed()) {
    observer_.OnBegin(now, call.observed, call.worker->id, more_bytes, budget_.in_flight_bytes());
  }
  observer_.OnReady(now, call.observed, more_bytes, budget_.in_flight_bytes());
  if (progress.outstanding_bytes == 0) observer_.OnEnd(now, call.observed, budget_.in_flight_bytes());
}

void LiveCalls::Receive(Call& call, int64_t bytes, TimePoint now) {
  const int64_t before_bytes = laps_.received_bytes();
  outstanding_.Receive(call, bytes, now);
  order_.OnReceived(call, laps_.received_bytes() - before_bytes);
  if (call.turn_of_tunnel() && !call.progress.aborted) {
    order_.OnGrantedOutOfTurn(call, outstanding_.Cost(bytes));
    outstanding_.Grant(call, bytes, now);
  }
  Settle(call, now);
  if (!call.observed.observed()) return;
  observer_.OnReceived(now, call.observed, bytes, budget_.in_flight_bytes());
  if (call.progress.was_ready && call.progress.outstanding_bytes <= 0)
    observer_.OnEnd(now, call.observed, budget_.in_flight_bytes());
}

void LiveCalls::Grant(Call& call, int64_t bytes, TimePoint now) {
  order_.OnGranted(call, outstanding_.CostOfGrant(call, bytes));
  queue_.Remove(call);
  if (call.phase == Phase::kReady) blocks_.Move(call, Phase::kInFlight);
  // Nobody knows how much of a tunnel's window will be used, so its worker owes nothing.
  if (call.turn_of_tunnel()) call.progress.remaining_bytes = 0;
  ChargeGrant(budget_, breaches_, [&] { outstanding_.Grant(call, bytes, now); });
  Settle(call, now);
}

// A stalled call gets no further grant until the bytes that were granted before have arrived. Late early bytes cost
// their worker the right to more of them: a method that hangs would otherwise hold the room of early bytes for ever.
Call* LiveCalls::TakeStalled(TimePoint now) {
  constexpr int64_t kDebt = 256;
  for (Outstanding::Overdue overdue = outstanding_.TakeOverdue(now); overdue.call != nullptr;
       overdue = outstanding_.TakeOverdue(now)) {
    Call& call = *overdue.call;
    if (!overdue.stalled) {
      call.worker->early_debt = kDebt;
      Settle(call, now);
      continue;
    }
    queue_.Remove(call);
    order_.Update(*call.block, now);
    workers_.LookAt(*call.worker, now);
    return &call;
  }
  return nullptr;
}

void LiveCalls::ObserveReady(Call& call, TimePoint now) {
  const std::chrono::nanoseconds ready_after = now - call.progress.sent_at;
  QueuedWorker& worker = *call.worker;
  outstanding_.Hear(worker, now);
  ++call.block->known_responses;
  worker.share.OnReady(ready_after);
  if (worker.early_debt > 0 && ready_after <= absl::ToChronoNanoseconds(options_.stall_timeout)) --worker.early_debt;
  if (Grants(options_)) sent_.ObserveReady(ready_after);
  ObserveHeaders(call);
}

// Updates the values that depend on the state of a call that is out: its charge, its turn, and whether it is silent.
void LiveCalls::Settle(Call& call, TimePoint now) {
  const CallProgress& progress = call.progress;
  outstanding_.Update(call, now);
  if (call.rest() == 0 || progress.aborted) {
    queue_.Remove(call);
  } else if (call.turn == Call::Turn::kNone && !progress.stalled) {
    order_.Rank(call);
    queue_.Add(call);
  }
  const bool nothing_comes = progress.remaining_bytes == 0 && call.rest() == 0;
  const bool answers =
      call.phase == Phase::kInFlight && !progress.aborted && !call.block->ahead && !call.turn_of_tunnel();
  sent_.SetSilent(call, Grants(options_) && answers && nothing_comes && !progress.late);
  order_.Update(*call.block, now);
  workers_.LookAt(*call.worker, now);
}

// An unwanted call never stops requests: it counts neither as ungranted nor as ready.
void LiveCalls::SetUnwanted(Call& call, TimePoint now) {
  call.progress.unwanted = true;
  queue_.Remove(call);
  if (call.phase == Phase::kSent) sent_.KeepFromEarly(call);
  if (call.phase == Phase::kReady) blocks_.Move(call, Phase::kInFlight);
  Settle(call, now);
}

void LiveCalls::Abort(Call& call, TimePoint now) {
  call.progress.aborted = true;
  LeaveCounts(call, CallEnd::kAborted, now);
  if (call.phase != Phase::kInFlight) blocks_.Move(call, Phase::kInFlight);
  Settle(call, now);
}

void LiveCalls::Unsend(Call& call, TimePoint now) {
  LeaveCounts(call, CallEnd::kArrived, now);
  outstanding_.Release(call, CallEnd::kArrived, now);
  Outstanding::Disclaim(call);
  observer_.OnEnd(now, call.observed, budget_.in_flight_bytes());
  call.progress = {.aborted = call.progress.aborted};
  call.place = 0;
  call.rank = 0;
  if (!call.progress.aborted) --call.worker->out_calls;
  blocks_.Move(call, call.progress.aborted ? Phase::kInFlight : Phase::kParked);
  outstanding_.Update(call, now);
  order_.Update(*call.block, now);
  workers_.LookAt(*call.worker, now);
}

void LiveCalls::EndUnsent(Call& call, TimePoint now) {
  workers_.LeaveWaiting(call);
  outstanding_.Release(call, CallEnd::kArrived, now);
  End(call, now);
}

void LiveCalls::Finish(Call& call, CallEnd end, TimePoint now) {
  ObserveHeaders(call);
  if (!call.progress.was_ready) ++call.block->known_responses;
  // A short response uses a part of its window. Otherwise tunnels would have less than the share of their class.
  if (call.turn_of_tunnel() && end == CallEnd::kArrived) order_.OnUnused(call, call.outstanding_cost);
  LeaveCounts(call, end, now);
  outstanding_.Update(call, now);
  outstanding_.Release(call, end, now);
  observer_.OnEnd(now, call.observed, budget_.in_flight_bytes());
  if (call.phase == Phase::kReady) blocks_.Move(call, Phase::kInFlight);
  --call.worker->out_calls;
  ++call.worker->ended_calls;
  End(call, now);
}

// The headers of an aborted request may still arrive, but no room is kept for them now. So they are charged until all
// bytes on their way have drained. Rejected: charging them until the call has ended. Resets are rationed, and a hung
// rack whose calls expire would close the budget of the link. The headers of stragglers are not charged. A thousand
// stragglers that are cancelled at once would stop the link for a drain time, although hardly any sends headers just
// then.
void LiveCalls::LeaveCounts(Call& call, CallEnd end, TimePoint now) {
  queue_.Remove(call);
  sent_.SetSilent(call, false);
  if (call.phase != Phase::kSent) return;
  if (end == CallEnd::kAborted && !call.progress.straggles)
    budget_.DrainAborted(now, call.header_bytes + call.large_header_bytes);
  sent_.Remove(call);
}

void LiveCalls::End(Call& call, TimePoint now) {
  QueuedWorker& worker = *call.worker;
  QueuedBlock& block = *call.block;
  blocks_.Take(call);
  calls_.Release(call);
  order_.Update(block, now);
  ++ended_;
  --worker.users;
  workers_.LookAt(worker, now);
}

void LiveCalls::Check() {
  const ScheduleSums sums{.submitted_calls = submitted_,
                          .ended_calls = ended_,
                          .waiting_calls = blocks_.waiting_calls(),
                          .sent_calls = blocks_.calls(Phase::kSent),
                          .ready_calls = blocks_.calls(Phase::kReady),
                          .in_flight_calls = blocks_.calls(Phase::kInFlight),
                          .listed_sent_calls = sent_.size(),
                          .straggling_calls = sent_.stragglers(),
                          .silent_calls = sent_.silent(),
                          .blocks = blocks_.size(),
                          .remaining_bytes = blocks_.remaining_bytes(),
                          .ready_bytes = blocks_.ready_bytes(),
                          .large_header_bytes = sent_.large_header_bytes(),
                          .silent_header_bytes = sent_.silent_header_bytes(),
                          .has_turns = !queue_.empty(),
                          .draining = budget_.draining_bytes() > 0,
                          .charged_bytes = budget_.in_flight_bytes(),
                          .early_bytes = budget_.early_bytes(),
                          .handshake_bytes = budget_.handshake_bytes(),
                          .slow_bytes = budget_.slow_bytes()};
  CheckSums(sums, breaches_);
}

}  // namespace sluice
