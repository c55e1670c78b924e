#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/set.hpp>

#include "sluice/link_schedule.h"

#include "absl/container/node_hash_map.h"
#include "lib/scheduling/call_table.h"

namespace sluice {

using SetHook = boost::intrusive::set_base_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>>;

// One block that has not ended, and its calls by phase. Not called Block: that is what readers get, in block_reader.h.
struct QueuedBlock : ListHook, SetHook {
  BlockId id = 0;
  TimePoint deadline;
  CallList waiting;    // in the order in which they leave
  CallList in_flight;  // in the order in which they left
  bool cancelled = false;

  // Batches only: T~, and the time at which the next batch may leave, which counts from the block's turn on.
  std::chrono::nanoseconds slot{0};
  TimePoint next_slot;

  bool ended() const { return waiting.empty() && in_flight.empty(); }
};

// The blocks that have not ended, in the order of their ids, which is that of their submission. One a schedule, not
// thread-safe. Addresses hold until Remove.
class BlockQueue {
 public:
  QueuedBlock& Add(TimePoint deadline);
  void Remove(QueuedBlock& block);  // has ended
  QueuedBlock* Find(BlockId id);    // null when the block has ended

  // Queues a call behind the waiting ones of the block.
  void PushWaiting(QueuedBlock& block, Call& call);
  // Takes the first of them; there is one.
  Call& PopWaiting(QueuedBlock& block);

  // Of the blocks with waiting calls: the oldest, and the one with the earliest deadline. Null when there is none.
  QueuedBlock* first_waiting() { return waiting_.empty() ? nullptr : &waiting_.front(); }
  QueuedBlock* first_to_expire() { return deadlines_.empty() ? nullptr : &*deadlines_.begin(); }
  const QueuedBlock* first_to_expire() const { return deadlines_.empty() ? nullptr : &*deadlines_.begin(); }

  int64_t size() const { return static_cast<int64_t>(blocks_.size()); }

 private:
  struct DeadlineKey {
    using type = std::pair<TimePoint, BlockId>;
    type operator()(const QueuedBlock& block) const { return {block.deadline, block.id}; }
  };

  void Link(QueuedBlock& block);

  BlockId last_id_ = 0;
  absl::node_hash_map<BlockId, QueuedBlock> blocks_;

  // Only blocks with waiting calls are linked here: nothing else can leave or expire.
  boost::intrusive::list<QueuedBlock, boost::intrusive::constant_time_size<false>> waiting_;
  boost::intrusive::set<QueuedBlock, boost::intrusive::key_of_value<DeadlineKey>,
                        boost::intrusive::constant_time_size<false>>
      deadlines_;
};

}  // namespace sluice
