#include <algorithm>

#include "lib/scheduling/schedule_machine.h"

// What can be seen of the state machine from outside.
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
  }
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

}  // namespace sluice
