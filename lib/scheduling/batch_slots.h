#pragma once

#include <chrono>

#include "sluice/link_profile.h"
#include "sluice/link_schedule.h"

#include "lib/scheduling/block_queue.h"

namespace sluice {

// Batches: which block may send until it ends, and when its next batch may leave. One a schedule, not thread-safe.
class BatchSlots {
 public:
  explicit BatchSlots(const LinkProfile& profile);

  void SetProfile(const LinkProfile& profile);

  // The block whose turn it is, where it has waiting calls: an older one, unparked since then, waits until it has
  // ended.
  QueuedBlock& NextBlock(QueuedBlock& first) { return turn_ != nullptr && !turn_->waiting.empty() ? *turn_ : first; }

  // Whether the first waiting call of the block may leave now. Gives the turn to the block where nobody has it.
  bool MayLeave(QueuedBlock& block, TimePoint now);
  void Left(QueuedBlock& block, const Call& call, TimePoint now);
  void Ended(const QueuedBlock& block);

  // TimePoint::max() when nothing waits for its slot. A slot that has come and still holds its call back waits for
  // room, not for time.
  TimePoint NextSlot(TimePoint now) const;

 private:
  std::chrono::nanoseconds jitter_;
  QueuedBlock* turn_ = nullptr;
};

}  // namespace sluice
