#include <algorithm>
#include <cassert>

#include "lib/scheduling/schedule_machine.h"

// What can be seen of the state machine from outside, and what always holds.
namespace sluice {

LinkDemand ScheduleMachine::Demand(TimePoint now) const {
  LinkDemand demand{.limit_bytes = budget_.bytes_at(std::max(now, now_)),
                    .demand_bytes = asked_bytes_,
                    .in_flight_bytes = budget_.in_flight_bytes() + window_.HeaderBytes(sent_.size()),
                    .need_bytes = 0,
                    .received_bytes = received_bytes_,
                    .oldest_block = 0,
                    .oldest_since = {}};
  if (const QueuedBlock* block = blocks_.first_ready()) demand.need_bytes = block->ready.front().cost_bytes;
  if (const QueuedBlock* block = blocks_.first_waiting()) {
    demand.need_bytes = std::max(demand.need_bytes, block->waiting.front().cost_bytes);
    if (granting_) demand.need_bytes = std::max(demand.need_bytes, window_.HeaderBytes(1));
  }
  // The others' headers come before anybody is in need of their room.
  if (demand.need_bytes > 0) demand.need_bytes += window_.HeaderBytes(sent_.stragglers());
  if (const QueuedBlock* block = blocks_.oldest()) {
    demand.oldest_block = block->id;
    demand.oldest_since = block->since;
  }
  return demand;
}

ScheduleState ScheduleMachine::State() const {
  return {.budget_bytes = budget_.bytes(),
          .plan_bytes = budget_.plan_bytes(),
          .in_flight_bytes = budget_.in_flight_bytes(),
          .in_flight_calls = blocks_.calls(Phase::kInFlight),
          .ungranted_calls = sent_.size() + blocks_.calls(Phase::kReady),
          .straggling_calls = sent_.stragglers(),
          .grant_window = granting_ ? window_.Requests(budget_.bytes()) : 0,
          .waiting_calls = waiting_calls(),
          .blocks = blocks_.size(),
          .submitted_calls = submitted_calls_,
          .ended_calls = ended_calls_};
}

void ScheduleMachine::Check() const {
  [[maybe_unused]] const int64_t out_calls =
      blocks_.calls(Phase::kSent) + blocks_.calls(Phase::kReady) + blocks_.calls(Phase::kInFlight);
  assert(submitted_calls_ == waiting_calls() + out_calls + ended_calls_);
  assert(sent_.size() == blocks_.calls(Phase::kSent) && sent_.stragglers() <= sent_.size());
  assert(budget_.in_flight_bytes() >= 0);
  assert(out_calls > 0 || budget_.next_drain() < TimePoint::max() || budget_.in_flight_bytes() == 0);
  assert((blocks_.size() == 0) == (waiting_calls() + out_calls == 0));
  assert(asked_bytes_ >= 0 && (asked_bytes_ == 0) == (blocks_.size() == 0));
}

}  // namespace sluice
