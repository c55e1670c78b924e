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

// One block that has not ended, and its calls by phase. Not called Block: that is what readers get, in block_reader.h.
struct QueuedBlock : ListHook, DeadlineHook, GrantHook, AgeHook {
  BlockId id = 0;
  TimePoint since;  // its submission
  TimePoint deadline;
  bool ahead = false;  // before all that are not
  bool cancelled = false;
  CallList parked;
  CallList waiting;    // in the order in which they leave
  CallList sent;       // grants: not ready yet
  CallList ready;      // grants: nothing of them is granted yet
  CallList in_flight;  // in the order in which they left, or were granted
  TurnList new_turns;  // kept by GrantQueue

  // Batches only: T~, and the time at which the next batch may leave, which counts from the block's turn on.
  std::chrono::nanoseconds slot{0};
  TimePoint next_slot;

  bool ungranted() const { return !parked.empty() || !waiting.empty() || !sent.empty() || !ready.empty(); }
  bool ended() const { return !ungranted() && in_flight.empty(); }
  bool idle() const { return waiting.empty() && sent.empty() && ready.empty() && in_flight.empty(); }
};

// The blocks that have not ended, in the order of their ids, which is that of their submission. One a schedule, not
// thread-safe. Addresses hold until Remove.
class BlockQueue {
 public:
  QueuedBlock& Add(TimePoint now, TimePoint deadline, bool ahead);
  void Remove(QueuedBlock& block);  // has ended
  QueuedBlock* Find(BlockId id);    // null when the block has ended

  // Puts a call behind those of its block that are in this phase, or takes it out of its phase; then it is in none.
  void Push(QueuedBlock& block, Call& call, Call::Phase phase);
  void Take(Call& call);
  void Move(Call& call, Call::Phase phase);  // both

  // The block whose waiting calls come first: one that goes ahead, else the oldest. Of those with calls that are not
  // granted, the one with the earliest deadline. Null when there is none.
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

  // Linked here is what can leave, or expire: blocks with waiting, and with any ungranted calls.
  boost::intrusive::list<QueuedBlock, boost::intrusive::base_hook<ListHook>,
                         boost::intrusive::constant_time_size<false>>
      waiting_;
  boost::intrusive::set<QueuedBlock, boost::intrusive::base_hook<DeadlineHook>,
                        boost::intrusive::key_of_value<DeadlineKey>, boost::intrusive::constant_time_size<false>>
      deadlines_;
};

}  // namespace sluice
