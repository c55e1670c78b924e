#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/set.hpp>

#include "sluice/time_point.h"

#include "absl/container/node_hash_map.h"
#include "lib/scheduling/block_order.h"
#include "lib/scheduling/call_table.h"
#include "lib/scheduling/schedule_events.h"

namespace sluice {

struct DeadlineTag;
struct WaitingTag;
struct WaitingAgeTag;
struct BlockAgeTag;
struct LateTag;
using DeadlineHook = boost::intrusive::set_base_hook<boost::intrusive::tag<DeadlineTag>>;
using WaitingHook = boost::intrusive::set_base_hook<boost::intrusive::tag<WaitingTag>>;
using WaitingAgeHook = boost::intrusive::set_base_hook<boost::intrusive::tag<WaitingAgeTag>>;
using LateHook = boost::intrusive::set_base_hook<boost::intrusive::tag<LateTag>>;
using BlockAgeHook = boost::intrusive::list_base_hook<boost::intrusive::tag<BlockAgeTag>>;

// One block that has not ended, with its calls by phase. block_reader.h already has a Block.
struct QueuedBlock : DeadlineHook, WaitingHook, WaitingAgeHook, LateHook, BlockAgeHook {
  BlockId id = 0;
  TimePoint since;  // when it was submitted
  TimePoint deadline;
  TimePoint late_after;  // it cannot make its deadline any more
  bool ahead = false;    // a handshake, which precedes all other blocks
  bool retries = false;  // a handshake after a failure, which follows the other handshakes
  bool cancelled = false;
  size_t traffic_class = 0;  // index
  int rank = 0;              // see BlockOrder; kept by ServiceOrder
  int request_rank = 0;      // its rank among the blocks whose requests wait; kept by ServiceOrder, like the next
  int held_rank = 0;         // the same for its calls that are held; it does not depend on what is ready
  // Kept by Outstanding, in units of the budget.
  int64_t remaining_bytes = 0;  // cost of the bytes still to come, with expected sizes, without parked calls
  int64_t known_bytes = 0;      // the part of the calls that are ready
  int64_t claimed_bytes = 0;    // cost of the bytes that were granted or announced since it was submitted
  int64_t unsized_calls = 0;    // calls whose responses may be larger than announced
  int64_t ready_bytes = 0;      // bytes that are ready and not granted; not cost
  int64_t counted_bytes = 0;    // remaining_bytes as counted in its class
  int64_t ungranted_calls = 0;  // sent or ready
  int64_t sent_requests = 0;    // since it was submitted, like the next; kept by LiveCalls
  int64_t known_responses = 0;  // that were ready, or ended instead
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

  BlockOrder order() const { return {.rank = rank, .id = id}; }
  // Returns whether its responses have announced less than this many bytes. A block of which nothing is known is small
  // for its first requests.
  bool small(int64_t bytes) const { return known_responses > 0 ? claimed_bytes < bytes : sent_requests < 16; }
  BlockOrder request_order() const { return {.rank = request_rank, .id = id}; }
  BlockOrder held_order() const { return {.rank = held_rank, .id = id}; }
  bool ungranted() const {
    return !parked.empty() || !held.empty() || !waiting.empty() || !sent.empty() || !ready.empty();
  }
  bool ended() const { return !ungranted() && in_flight.empty(); }
  // Used by batches only, which never hold calls.
  bool idle() const { return waiting.empty() && sent.empty() && ready.empty() && in_flight.empty(); }
};

// The blocks that have not ended, by class. Ids are in the order of submission. There is one for each schedule. Not
// thread-safe. Addresses are valid until Remove.
class BlockQueue {
 public:
  explicit BlockQueue(size_t classes) : classes_(classes) {}

  QueuedBlock& Add(TimePoint now, TimePoint deadline, size_t traffic_class);
  QueuedBlock& AddAhead(TimePoint now, TimePoint deadline, bool retries);
  void Remove(QueuedBlock& block);  // the block must have ended
  QueuedBlock* Find(BlockId id);    // null if the block has ended

  // Push appends a call to its block's calls in this phase; a call that was held returns to its previous place. Take
  // removes a call from its phase; it is then in no phase.
  void Push(QueuedBlock& block, Call& call, Call::Phase phase);
  void Take(Call& call);
  void Move(Call& call, Call::Phase phase);  // Take, then Push

  void SetRequestRank(QueuedBlock& block, int request_rank);
  void CountRemaining(QueuedBlock& block);  // call it after each change of its remaining_bytes
  // Sets when the block becomes late; TimePoint::max() for never. Returns whether it is.
  bool SetLateAfter(QueuedBlock& block, TimePoint late_after, TimePoint now);
  int64_t remaining_bytes(size_t traffic_class) const { return classes_[traffic_class].remaining_bytes; }
  int64_t remaining_bytes() const { return remaining_bytes_; }  // of all classes

  // Bytes of the class that are ready at workers and not granted; CountReady adds to them.
  int64_t ready_bytes(size_t traffic_class) const { return classes_[traffic_class].ready_bytes; }
  int64_t ready_bytes() const { return ready_bytes_; }  // of all classes
  void CountReady(QueuedBlock& block, int64_t more_bytes);

  // first_waiting: the first block of the class by request_order with waiting calls, except handshakes. oldest_waiting:
  // the oldest such block. first_ahead: the next handshake that waits; retries come after all others.
  // first_to_expire: the block with the earliest deadline among the blocks with calls that are not granted. Each
  // returns null if there is no such block.
  QueuedBlock* first_waiting(size_t traffic_class) { return First(classes_[traffic_class].waiting); }
  QueuedBlock* oldest_waiting(size_t traffic_class) { return First(classes_[traffic_class].waiting_by_age); }
  QueuedBlock* first_ahead() { return First(ahead_); }
  // The block that became late first, and is not marked as late.
  QueuedBlock* first_late(TimePoint now) {
    return on_time_.empty() || on_time_.begin()->late_after >= now ? nullptr : &*on_time_.begin();
  }
  QueuedBlock* first_to_expire() { return deadlines_.empty() ? nullptr : &*deadlines_.begin(); }

  const ClassBits& waiting_classes() const { return waiting_classes_; }  // except handshakes

  const QueuedBlock* oldest() const { return by_age_.empty() ? nullptr : &by_age_.front(); }
  // The blocks by their age; null after the youngest.
  QueuedBlock* oldest() { return by_age_.empty() ? nullptr : &by_age_.front(); }
  QueuedBlock* next(QueuedBlock& block) {
    const auto next = ++by_age_.iterator_to(block);
    return next == by_age_.end() ? nullptr : &*next;
  }

  // Returns a bit for each class whose calls have changed since the last time.
  ClassBits TakeChanged() { return std::exchange(changed_, {}); }
  void SetAllChanged() { changed_.set(); }

  int64_t size() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t calls(Call::Phase phase) const { return calls_[static_cast<size_t>(phase)]; }  // of all blocks
  int64_t waiting_calls() const {  // including held and parked ones
    return calls(Call::Phase::kWaiting) + calls(Call::Phase::kHeld) + calls(Call::Phase::kParked);
  }
  // Same, of one class and without handshakes.
  int64_t waiting_calls(size_t traffic_class) const { return classes_[traffic_class].waiting_calls; }

 private:
  struct DeadlineKey {
    using type = std::pair<TimePoint, BlockId>;
    type operator()(const QueuedBlock& block) const { return {block.deadline, block.id}; }
  };
  struct LateKey {
    using type = std::pair<TimePoint, BlockId>;
    type operator()(const QueuedBlock& block) const { return {block.late_after, block.id}; }
  };
  struct OrderKey {
    using type = BlockOrder;
    type operator()(const QueuedBlock& block) const { return block.request_order(); }
  };
  struct AgeKey {
    using type = BlockId;
    type operator()(const QueuedBlock& block) const { return block.id; }
  };
  struct AheadKey {
    using type = std::pair<bool, BlockId>;
    type operator()(const QueuedBlock& block) const { return {block.retries, block.id}; }
  };
  template <class Hook, class Key>
  using BlockSet =
      boost::intrusive::set<QueuedBlock, boost::intrusive::base_hook<Hook>, boost::intrusive::key_of_value<Key>,
                            boost::intrusive::constant_time_size<false>>;

  // The blocks of one class.
  struct ClassBlocks {
    // Those with waiting calls.
    BlockSet<WaitingHook, OrderKey> waiting;
    BlockSet<WaitingAgeHook, AgeKey> waiting_by_age;
    int64_t remaining_bytes = 0;
    int64_t ready_bytes = 0;
    int64_t waiting_calls = 0;
  };

  template <class Blocks>
  static QueuedBlock* First(Blocks& blocks) {
    return blocks.empty() ? nullptr : &*blocks.begin();
  }
  void Relink(QueuedBlock& block, bool was_waiting);
  void LinkWaiting(QueuedBlock& block);
  void UnlinkWaiting(QueuedBlock& block);
  void Count(QueuedBlock& block, Call::Phase phase, int64_t more_calls);

  BlockId last_id_ = 0;
  int64_t ready_bytes_ = 0;
  int64_t remaining_bytes_ = 0;
  std::array<int64_t, Call::kPhases> calls_{};
  absl::node_hash_map<BlockId, QueuedBlock> blocks_;

  boost::intrusive::list<QueuedBlock, boost::intrusive::base_hook<BlockAgeHook>,
                         boost::intrusive::constant_time_size<false>>
      by_age_;

  std::vector<ClassBlocks> classes_;
  ClassBits waiting_classes_;
  ClassBits changed_;
  // Handshakes that wait, and blocks with calls that are not granted. The latter can expire.
  BlockSet<WaitingHook, AheadKey> ahead_;
  BlockSet<DeadlineHook, DeadlineKey> deadlines_;
  BlockSet<LateHook, LateKey> on_time_;  // blocks that may become late
};

}  // namespace sluice
