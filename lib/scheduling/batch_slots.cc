#include "lib/scheduling/batch_slots.h"

#include <algorithm>

#include "absl/time/time.h"
#include "lib/scheduling/saturating_add.h"

namespace sluice {

BatchSlots::BatchSlots(const LinkProfile& profile) : jitter_(absl::ToChronoNanoseconds(profile.timer_jitter)) {}

void BatchSlots::SetProfile(const LinkProfile& profile) {
  jitter_ = absl::ToChronoNanoseconds(profile.timer_jitter);
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
