#pragma once

#include <chrono>

#include "sluice/link_profile.h"
#include "sluice/time_point.h"

#include "lib/scheduling/block_queue.h"

namespace sluice {

// For batches: tracks which block may send until it ends, and when its next batch may leave. There is one for each
// schedule. Not thread-safe.
class BatchSlots {
 public:
  explicit BatchSlots(const LinkProfile& profile);

  void SetProfile(const LinkProfile& profile);

  // Returns the block whose turn it is if it has waiting calls, otherwise `first`. An older block that was unparked
  // during this turn waits until the block with the turn has ended.
  QueuedBlock& NextBlock(QueuedBlock& first) { return turn_ != nullptr && !turn_->waiting.empty() ? *turn_ : first; }

  // Returns whether the first waiting call of the block may leave now. If no block has the turn, this block gets it.
  bool MayLeave(QueuedBlock& block, TimePoint now);
  void Left(QueuedBlock& block, const Call& call, TimePoint now);
  void Ended(const QueuedBlock& block);

  // Returns TimePoint::max() if no call waits for its slot. A call whose slot has begun waits for room, not for time.
  TimePoint NextSlot(TimePoint now) const;

 private:
  std::chrono::nanoseconds jitter_;
  QueuedBlock* turn_ = nullptr;
};

}  // namespace sluice
