#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <utility>

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/set.hpp>

#include "sluice/time_point.h"

#include "absl/container/node_hash_map.h"
#include "lib/scheduling/call_table.h"
#include "lib/scheduling/schedule_events.h"

namespace sluice {

struct DeadlineTag;
struct WaitingTag;
struct AgeTag;
using DeadlineHook = boost::intrusive::set_base_hook<boost::intrusive::tag<DeadlineTag>>;
using WaitingHook = boost::intrusive::set_base_hook<boost::intrusive::tag<WaitingTag>>;
using AgeHook = boost::intrusive::list_base_hook<boost::intrusive::tag<AgeTag>>;

// One block that has not ended, with its calls by phase. It is not called Block, since block_reader.h has one.
struct QueuedBlock : DeadlineHook, WaitingHook, AgeHook {
  BlockId id = 0;
  TimePoint since;  // when it was submitted
  TimePoint deadline;
  bool ahead = false;    // a handshake, which comes before all blocks that are none
  bool retries = false;  // one after a failure, which comes behind those that are none
  bool cancelled = false;
  CallList parked;
  CallList held;
  CallList waiting;         // in the order in which they leave
  CallList sent;            // grants: not ready yet
  CallList ready;           // grants: nothing is granted yet
  CallList in_flight;       // in the order in which they left, or were granted
  uint64_t last_place = 0;  // of a waiting call

  // Batches only: T~, and the time at which the next batch may leave, which counts from the block's turn on.
  std::chrono::nanoseconds slot{0};
  TimePoint next_slot;

  bool ungranted() const {
    return !parked.empty() || !held.empty() || !waiting.empty() || !sent.empty() || !ready.empty();
  }
  bool ended() const { return !ungranted() && in_flight.empty(); }
  // Only batches ask, which hold no calls.
  bool idle() const { return waiting.empty() && sent.empty() && ready.empty() && in_flight.empty(); }
};

// The blocks that have not ended, in the order of their ids, which is that of their submission. There is one for each
// schedule. Not thread-safe. Addresses are valid until Remove.
class BlockQueue {
 public:
  QueuedBlock& Add(TimePoint now, TimePoint deadline, bool ahead = false, bool retries = false);
  void Remove(QueuedBlock& block);  // the block must have ended
  QueuedBlock* Find(BlockId id);    // null if the block has ended

  // Push puts a call after those of its block that are in this phase; a call that was held goes to its place again.
  // Take takes it out of its phase; then it is in none.
  void Push(QueuedBlock& block, Call& call, Call::Phase phase);
  void Take(Call& call);
  void Move(Call& call, Call::Phase phase);  // takes and pushes it

  // first_waiting: the oldest block with waiting calls. first_ahead: the oldest of those that go ahead, which are not
  // in first_waiting; retries come after all others.
  // first_to_expire: the block with the earliest deadline among those with calls that are not granted. Null if there is
  // none.
  QueuedBlock* first_waiting() { return First(waiting_); }
  QueuedBlock* first_ahead() { return First(ahead_); }
  QueuedBlock* first_to_expire() { return deadlines_.empty() ? nullptr : &*deadlines_.begin(); }
  const QueuedBlock* first_to_expire() const { return deadlines_.empty() ? nullptr : &*deadlines_.begin(); }

  const QueuedBlock* oldest() const { return by_age_.empty() ? nullptr : &by_age_.front(); }
  const QueuedBlock* first_waiting() const { return First(waiting_); }
  const QueuedBlock* first_ahead() const { return First(ahead_); }

  int64_t size() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t calls(Call::Phase phase) const { return calls_[static_cast<size_t>(phase)]; }  // of all blocks

 private:
  struct DeadlineKey {
    using type = std::pair<TimePoint, BlockId>;
    type operator()(const QueuedBlock& block) const { return {block.deadline, block.id}; }
  };
  struct WaitingKey {
    using type = std::pair<bool, BlockId>;
    type operator()(const QueuedBlock& block) const { return {block.retries, block.id}; }
  };
  using WaitingBlocks =
      boost::intrusive::set<QueuedBlock, boost::intrusive::base_hook<WaitingHook>,
                            boost::intrusive::key_of_value<WaitingKey>, boost::intrusive::constant_time_size<false>>;

  static CallList& ListOf(QueuedBlock& block, Call::Phase phase);
  template <class Blocks>
  static auto First(Blocks& blocks) -> decltype(&*blocks.begin()) {
    return blocks.empty() ? nullptr : &*blocks.begin();
  }
  WaitingBlocks& WaitingOf(const QueuedBlock& block) { return block.ahead ? ahead_ : waiting_; }
  static void PushWaiting(QueuedBlock& block, Call& call);
  void Relink(QueuedBlock& block, bool was_waiting);

  BlockId last_id_ = 0;
  std::array<int64_t, Call::kPhases> calls_{};
  absl::node_hash_map<BlockId, QueuedBlock> blocks_;

  boost::intrusive::list<QueuedBlock, boost::intrusive::base_hook<AgeHook>, boost::intrusive::constant_time_size<false>>
      by_age_;

  // Blocks with waiting calls, and blocks with calls that are not granted, which can expire.
  WaitingBlocks waiting_;
  WaitingBlocks ahead_;
  boost::intrusive::set<QueuedBlock, boost::intrusive::base_hook<DeadlineHook>,
                        boost::intrusive::key_of_value<DeadlineKey>, boost::intrusive::constant_time_size<false>>
      deadlines_;
};

}  // namespace sluice
