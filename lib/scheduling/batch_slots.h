#pragma once

#include <chrono>

#include "sluice/link_profile.h"
#include "sluice/time_point.h"

#include "lib/scheduling/block_queue.h"

namespace sluice {

// Batches: which block may send until it ends, and when its next batch may leave. There is one for each schedule. Not
// thread-safe.
class BatchSlots {
 public:
  explicit BatchSlots(const LinkProfile& profile);

  void SetProfile(const LinkProfile& profile);

  // The block whose turn it is, if it has waiting calls, or else `first`. An older block that was unparked since then
  // waits until the block with the turn has ended.
  QueuedBlock& NextBlock(QueuedBlock& first) { return turn_ != nullptr && !turn_->waiting.empty() ? *turn_ : first; }

  // Whether the first waiting call of the block may leave now. If no block has the turn, this one gets it.
  bool MayLeave(QueuedBlock& block, TimePoint now);
  void Left(QueuedBlock& block, const Call& call, TimePoint now);
  void Ended(const QueuedBlock& block);

  // TimePoint::max() if nothing waits for its slot. A call whose slot has come waits for room, not for time.
  TimePoint NextSlot(TimePoint now) const;

 private:
  std::chrono::nanoseconds jitter_;
  QueuedBlock* turn_ = nullptr;
};

}  // namespace sluice
