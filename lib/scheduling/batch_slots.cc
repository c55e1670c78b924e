#include "lib/scheduling/batch_slots.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "lib/scheduling/batch_plan.h"
#include "lib/scheduling/saturating_add.h"

namespace sluice {

BatchSlots::BatchSlots(const ScheduleOptions& options) : options_(options) {
  OnOptionsChanged();
}

void BatchSlots::OnOptionsChanged() {
  jitter_ = absl::ToChronoNanoseconds(options_.profile.timer_jitter);
}

// The calls keep their order, so each batch has consecutive calls.
void BatchSlots::OnPolicyChanged(BlockQueue& blocks, int64_t plan_bytes) {
  turn_ = nullptr;
  if (!batched()) return;
  for (QueuedBlock* block = blocks.oldest(); block != nullptr; block = blocks.next(*block)) {
    if (block->ahead || block->waiting.empty()) continue;
    std::vector<CallRequest> calls;
    for (const Call& call : block->waiting) calls.push_back({.response_bytes = call.expected_bytes});
    const size_t batches = Plan(*block, calls, plan_bytes);
    const size_t batch_calls = (calls.size() + batches - 1) / batches;
    size_t i = 0;
    for (Call& call : block->waiting) call.opens_slot = i++ % batch_calls == 0;
  }
}

// Sets T~ and returns k.
size_t BatchSlots::Plan(QueuedBlock& block, absl::Span<const CallRequest> calls, int64_t plan_bytes) const {
  const auto by_size = [](const CallRequest& a, const CallRequest& b) { return a.response_bytes < b.response_bytes; };
  const int64_t largest = std::max_element(calls.begin(), calls.end(), by_size)->response_bytes;
  const BatchPlan plan = PlanBatches(options_, plan_bytes, largest, static_cast<int64_t>(calls.size()));
  block.slot = plan.slot;
  return static_cast<size_t>(plan.batches);
}

void BatchSlots::AddSlot(QueuedBlock& block, int64_t response_bytes, int64_t plan_bytes) const {
  block.slot = std::max(block.slot, PlanBatches(options_, plan_bytes, response_bytes, 1).slot);
}

// The next call still waits for the slot.
void BatchSlots::PassOn(Call& call) {
  if (call.phase != Call::Phase::kWaiting || !std::exchange(call.opens_slot, false)) return;
  const auto next = std::next(call.block->waiting.iterator_to(call));
  if (next != call.block->waiting.end()) next->opens_slot = true;
}

bool BatchSlots::MayLeave(QueuedBlock& block, TimePoint now) {
  if (turn_ == nullptr) {
    turn_ = &block;
    block.next_slot = now;
  }
  return turn_ == &block && !(block.waiting.front().opens_slot && block.next_slot > now);
}

// T~ allows for a timer that is late by the jitter. Up to that lateness the slots stay at the times of the paper, so
// that lateness does not add up. A call that leaves later moves the slots that follow, otherwise two batches would meet
// in the buffer. Rejected: catching up (batches would meet), and T~ after the actual time always (each slot would add
// its own lateness).
void BatchSlots::Left(QueuedBlock& block, const Call& call, TimePoint now) {
  if (call.opens_slot) block.next_slot = SaturatingAdd(block.next_slot, block.slot);
  block.next_slot = std::max(block.next_slot, SaturatingAdd(now - jitter_, block.slot));
}

void BatchSlots::Ended(const QueuedBlock& block) {
  if (turn_ == &block) turn_ = nullptr;
}

TimePoint BatchSlots::NextSlot(TimePoint now) const {
  const bool waits = turn_ != nullptr && !turn_->waiting.empty() && turn_->waiting.front().opens_slot;
  return waits && turn_->next_slot > now ? turn_->next_slot : TimePoint::max();
}

}  // namespace sluice
