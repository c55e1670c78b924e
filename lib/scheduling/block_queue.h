#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <utility>

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/set.hpp>

#include "sluice/link_schedule.h"

#include "absl/container/node_hash_map.h"
#include "lib/scheduling/call_table.h"

namespace sluice {

struct DeadlineTag;
struct GrantTag;
struct AgeTag;
using DeadlineHook = boost::intrusive::set_base_hook<boost::intrusive::tag<DeadlineTag>>;
using GrantHook = boost::intrusive::set_base_hook<boost::intrusive::tag<GrantTag>>;
using TurnList =
    boost::intrusive::list<Call, boost::intrusive::base_hook<TurnHook>, boost::intrusive::constant_time_size<false>>;
using AgeHook = boost::intrusive::list_base_hook<boost::intrusive::tag<AgeTag>>;

// One block that has not ended, with its calls by phase. It is not called Block, since block_reader.h has one.
struct QueuedBlock : ListHook, DeadlineHook, GrantHook, AgeHook {
  BlockId id = 0;
  TimePoint since;  // when it was submitted
  TimePoint deadline;
  bool ahead = false;  // comes before all blocks that are not ahead
  bool cancelled = false;
  CallList parked;
  CallList waiting;    // in the order in which they leave
  CallList sent;       // grants: not ready yet
  CallList ready;      // grants: nothing is granted yet
  CallList in_flight;  // in the order in which they left, or were granted
  TurnList new_turns;  // kept by GrantQueue

  // Batches only: T~, and the time at which the next batch may leave, which counts from the block's turn on.
  std::chrono::nanoseconds slot{0};
  TimePoint next_slot;

  bool ungranted() const { return !parked.empty() || !waiting.empty() || !sent.empty() || !ready.empty(); }
  bool ended() const { return !ungranted() && in_flight.empty(); }
  bool idle() const { return waiting.empty() && sent.empty() && ready.empty() && in_flight.empty(); }
};

// The blocks that have not ended, in the order of their ids, which is that of their submission. There is one for each
// schedule. Not thread-safe. Addresses are valid until Remove.
class BlockQueue {
 public:
  QueuedBlock& Add(TimePoint now, TimePoint deadline, bool ahead);
  void Remove(QueuedBlock& block);  // the block must have ended
  QueuedBlock* Find(BlockId id);    // null if the block has ended

  // Push puts a call after those of its block that are in this phase. Take takes it out of its phase; then it is in
  // none.
  void Push(QueuedBlock& block, Call& call, Call::Phase phase);
  void Take(Call& call);
  void Move(Call& call, Call::Phase phase);  // takes and pushes it

  // first_waiting: the block whose waiting calls come first, which is one that goes ahead, or else the oldest.
  // first_to_expire: the block with the earliest deadline among those with calls that are not granted. Null if there is
  // none.
  QueuedBlock* first_waiting() { return waiting_.empty() ? nullptr : &waiting_.front(); }
  QueuedBlock* first_to_expire() { return deadlines_.empty() ? nullptr : &*deadlines_.begin(); }
  const QueuedBlock* first_to_expire() const { return deadlines_.empty() ? nullptr : &*deadlines_.begin(); }

  const QueuedBlock* oldest() const { return by_age_.empty() ? nullptr : &by_age_.front(); }
  const QueuedBlock* first_waiting() const { return waiting_.empty() ? nullptr : &waiting_.front(); }

  int64_t size() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t calls(Call::Phase phase) const { return calls_[static_cast<size_t>(phase)]; }  // of all blocks

 private:
  struct DeadlineKey {
    using type = std::pair<TimePoint, BlockId>;
    type operator()(const QueuedBlock& block) const { return {block.deadline, block.id}; }
  };
  static CallList& ListOf(QueuedBlock& block, Call::Phase phase);
  void LinkWaiting(QueuedBlock& block);
  void Relink(QueuedBlock& block, bool was_waiting);

  BlockId last_id_ = 0;
  std::array<int64_t, Call::kPhases> calls_{};
  absl::node_hash_map<BlockId, QueuedBlock> blocks_;

  boost::intrusive::list<QueuedBlock, boost::intrusive::base_hook<AgeHook>, boost::intrusive::constant_time_size<false>>
      by_age_;

  // Blocks with waiting calls, and blocks with calls that are not granted, which can expire.
  boost::intrusive::list<QueuedBlock, boost::intrusive::base_hook<ListHook>,
                         boost::intrusive::constant_time_size<false>>
      waiting_;
  boost::intrusive::set<QueuedBlock, boost::intrusive::base_hook<DeadlineHook>,
                        boost::intrusive::key_of_value<DeadlineKey>, boost::intrusive::constant_time_size<false>>
      deadlines_;
};

}  // namespace sluice
