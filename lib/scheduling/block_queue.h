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

// One block that has not ended, with its calls by phase. block_reader.h already has a Block.
struct QueuedBlock : DeadlineHook, WaitingHook, AgeHook {
  BlockId id = 0;
  TimePoint since;  // when it was submitted
  TimePoint deadline;
  bool ahead = false;    // a handshake, which precedes all other blocks
  bool retries = false;  // a handshake after a failure, which follows the other handshakes
  bool cancelled = false;
  CallList parked;
  CallList held;
  CallList waiting;         // in the order in which they leave
  CallList sent;            // grants: not ready yet
  CallList ready;           // grants: ready, without a grant
  CallList in_flight;       // in the order in which they left, or were granted
  uint64_t last_place = 0;  // the last place that a waiting call got

  // Batches only: T~, and the time at which the next batch may leave. The slots begin with the block's turn.
  std::chrono::nanoseconds slot{0};
  TimePoint next_slot;

  bool ungranted() const {
    return !parked.empty() || !held.empty() || !waiting.empty() || !sent.empty() || !ready.empty();
  }
  bool ended() const { return !ungranted() && in_flight.empty(); }
  // Used by batches only, which never hold calls.
  bool idle() const { return waiting.empty() && sent.empty() && ready.empty() && in_flight.empty(); }
};

// The order in which blocks are served: the oldest first. Waiting requests, held requests and new responses follow it.
struct BlockTurnKey {
  using type = BlockId;
  type operator()(const QueuedBlock& block) const { return block.id; }
};

// The blocks that have not ended, ordered by id, which is the order of submission. There is one for each schedule. Not
// thread-safe. Addresses are valid until Remove.
class BlockQueue {
 public:
  QueuedBlock& Add(TimePoint now, TimePoint deadline, bool ahead = false, bool retries = false);
  void Remove(QueuedBlock& block);  // the block must have ended
  QueuedBlock* Find(BlockId id);    // null if the block has ended

  // Push appends a call to its block's calls in this phase; a call that was held returns to its previous place. Take
  // removes a call from its phase; it is then in no phase.
  void Push(QueuedBlock& block, Call& call, Call::Phase phase);
  void Take(Call& call);
  void Move(Call& call, Call::Phase phase);  // Take, then Push

  // first_waiting: the next block with waiting calls, except handshakes. first_ahead: the next handshake that
  // waits; retries come after all others. first_to_expire: the block with the earliest deadline among the blocks with
  // calls that are not granted. Each returns null if there is no such block.
  QueuedBlock* first_waiting() { return First(waiting_); }
  QueuedBlock* first_ahead() { return First(ahead_); }
  QueuedBlock* first_to_expire() { return deadlines_.empty() ? nullptr : &*deadlines_.begin(); }

  const QueuedBlock* oldest() const { return by_age_.empty() ? nullptr : &by_age_.front(); }

  int64_t size() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t calls(Call::Phase phase) const { return calls_[static_cast<size_t>(phase)]; }  // of all blocks
  int64_t waiting_calls() const {  // including held and parked ones
    return calls(Call::Phase::kWaiting) + calls(Call::Phase::kHeld) + calls(Call::Phase::kParked);
  }

 private:
  struct DeadlineKey {
    using type = std::pair<TimePoint, BlockId>;
    type operator()(const QueuedBlock& block) const { return {block.deadline, block.id}; }
  };
  struct WaitingKey {
    using type = std::pair<bool, BlockTurnKey::type>;
    type operator()(const QueuedBlock& block) const { return {block.retries, BlockTurnKey()(block)}; }
  };
  using WaitingBlocks =
      boost::intrusive::set<QueuedBlock, boost::intrusive::base_hook<WaitingHook>,
                            boost::intrusive::key_of_value<WaitingKey>, boost::intrusive::constant_time_size<false>>;

  static CallList& ListOf(QueuedBlock& block, Call::Phase phase);
  static QueuedBlock* First(WaitingBlocks& blocks) { return blocks.empty() ? nullptr : &*blocks.begin(); }
  WaitingBlocks& WaitingOf(const QueuedBlock& block) { return block.ahead ? ahead_ : waiting_; }
  static void PushWaiting(QueuedBlock& block, Call& call);
  void Relink(QueuedBlock& block, bool was_waiting);

  BlockId last_id_ = 0;
  std::array<int64_t, Call::kPhases> calls_{};
  absl::node_hash_map<BlockId, QueuedBlock> blocks_;

  boost::intrusive::list<QueuedBlock, boost::intrusive::base_hook<AgeHook>, boost::intrusive::constant_time_size<false>>
      by_age_;

  // Blocks with waiting calls, and blocks with calls that are not granted. The latter can expire.
  WaitingBlocks waiting_;
  WaitingBlocks ahead_;
  boost::intrusive::set<QueuedBlock, boost::intrusive::base_hook<DeadlineHook>,
                        boost::intrusive::key_of_value<DeadlineKey>, boost::intrusive::constant_time_size<false>>
      deadlines_;
};

}  // namespace sluice
