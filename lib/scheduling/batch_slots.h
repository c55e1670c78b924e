#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "sluice/schedule.h"
#include "sluice/time_point.h"

#include "absl/types/span.h"
#include "lib/scheduling/block_queue.h"
#include "lib/scheduling/schedule_events.h"

namespace sluice {

// For batches: deals the calls of a block into batches, one for each slot. Tracks which block may send until it ends,
// and when its next batch may leave. There is one for each schedule. Not thread-safe. The options must outlive it.
class BatchSlots {
 public:
  explicit BatchSlots(const ScheduleOptions& options);

  void OnOptionsChanged();
  // Begins again: no block has the turn. With batches, deals the calls that wait, of all blocks.
  void OnPolicyChanged(BlockQueue& blocks, int64_t plan_bytes);

  bool batched() const { return options_.policy == SchedulePolicy::kBatches; }

  // Sets T~ of the block, and calls queue(i, opens_slot) for each call, in the order in which they leave. By eq. 20
  // call i belongs to batch i mod k, which makes the batches as equal as possible.
  template <class Queue>
  void Deal(QueuedBlock& block, absl::Span<const CallRequest> calls, int64_t plan_bytes, const Queue& queue) const {
    const size_t batches = Plan(block, calls, plan_bytes);
    for (size_t batch = 0; batch < batches; ++batch) {
      bool opens_slot = true;
      for (size_t i = batch; i < calls.size(); i += batches) {
        queue(i, opens_slot && !calls[i].parked);
        opens_slot = opens_slot && calls[i].parked;
      }
    }
  }
  // Makes T~ of the block long enough for one more call, which gets a slot of its own.
  void AddSlot(QueuedBlock& block, int64_t response_bytes, int64_t plan_bytes) const;
  // Gives the slot of a call that ends unsent to the next call of its batch.
  static void PassOn(Call& call);

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
  size_t Plan(QueuedBlock& block, absl::Span<const CallRequest> calls, int64_t plan_bytes) const;

  const ScheduleOptions& options_;
  std::chrono::nanoseconds jitter_{0};
  QueuedBlock* turn_ = nullptr;
};

}  // namespace sluice
