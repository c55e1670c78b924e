#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sluice/schedule.h"
#include "sluice/time_point.h"

#include "absl/types/span.h"
#include "lib/scheduling/block_queue.h"
#include "lib/scheduling/budget.h"
#include "lib/scheduling/call_table.h"
#include "lib/scheduling/grant_queue.h"
#include "lib/scheduling/queued_workers.h"
#include "lib/scheduling/sent_calls.h"

namespace sluice {

// The order in which requests and ready responses are served. There is one for each schedule. Not thread-safe. The
// objects that it refers to must outlive it.
//
// The order has only facts as keys: bytes that were granted or announced, requests that have left, and ages. Sizes that
// are expected, from history or from the caller, are in none. The next class is the one that got the fewest bytes by
// weight among the classes that could use them: start-time fair queueing. In a class, blocks are ordered by BlockOrder.
// The bytes of a block are those that remain if all of its responses are ready; otherwise those that were granted or
// announced since it was submitted, a number that only grows, in powers of 16. In a block, the shortest message comes
// first. A quarter of the class is kept for its oldest ready response: once one budget of bytes has overtaken it, it
// comes first whatever its size. Without shortest_first, and with batches, blocks are served first come, first served.
// A block whose announced bytes cannot make its deadline any more comes after all others of its class, except in that
// quarter: otherwise it would take the time of a block that can, which would then miss its own.
//
// With grants, requests have an order of their own. Blocks that have announced less than a budget come first. Then the
// block that has sent the fewest requests comes first, in powers of two, and the oldest among equals. Every fourth
// request belongs to the oldest block.
//
// Anchors: SRPT is the order with the least mean time (Schrage, 1968), and foreground-background is the best one while
// sizes are unknown (Aalto, Ayesta and Righter, 2009). Homa keeps a share for the oldest message, too. SFQ (Goyal, Vin
// and Cheng, 1996) needs no rate of the link. Rejected: the exact bytes as the order. With each byte that arrives a
// block would move past its equals, and equal blocks would end all at the same time. Rejected: expected sizes as the
// order. The 95th percentile of a method that also serves scans made each of its queries wait for the scans.
class ServiceOrder {
 public:
  ServiceOrder(const ScheduleOptions& options, BlockQueue& blocks, QueuedWorkers& workers, GrantQueue& queue,
               SentCalls& sent, const Budget& budget);

  // Call them after each change of what is still to come of the block, and before a call is added to GrantQueue.
  void Update(QueuedBlock& block, TimePoint now);
  void Rank(Call& call) const;
  // Moves blocks behind the others that cannot make their deadline any more. Call it before each event.
  void MoveLate(TimePoint now);

  // Records that the request of a waiting call leaves. Call it before the call leaves its place.
  void OnSent(const Call& call);
  // Records bytes of this cost that are granted to a call. Call it before the call leaves its place.
  void OnGranted(const Call& call, int64_t cost_bytes);
  // Same, for bytes that follow others of the call without a turn of their own.
  void OnGrantedOutOfTurn(const Call& call, int64_t cost_bytes);
  // Bytes that were granted to the turn of a tunnel, and that nobody used.
  void OnUnused(const Call& call, int64_t cost_bytes);
  // Records bytes of this cost that came.
  void OnReceived(const Call& call, int64_t cost_bytes) {
    if (!call.block->ahead) classes_[call.block->traffic_class].received_bytes += cost_bytes;
  }
  // Returns the cost of what came of the class since the start.
  int64_t received_bytes(size_t traffic_class) const { return classes_[traffic_class].received_bytes; }

  int64_t late_blocks() const { return late_blocks_; }  // have lost their place since the start

  // The indices of the classes whose requests may be next, by turn. The next OnGranted changes it.
  absl::Span<const size_t> classes() const;

  Call* NextReady();
  Call* NextEarly();  // the next call that is sent and may be granted before it is ready
  // Returns the block whose request is next in the class; null if none waits, or if another class has the turn.
  QueuedBlock* NextWaiting(size_t traffic_class);
  QueuedBlock* NextWaiting();  // of all classes
  // Returns whether a ready response comes before the requests of this block.
  bool ReadyPrecedes(const QueuedBlock& block) const;

  // Returns the share of the link that belongs to the class while all classes have traffic, 0 to 1.
  double ShareOf(size_t traffic_class) const { return classes_[traffic_class].share; }
  void OnWeightsChanged();  // call it after each change of the weights of classes
  void OnPolicyChanged();   // bytes that classes got under another policy count no more

 private:
  struct ServiceClass {
    int64_t received_bytes = 0;
    int64_t overtook_bytes = 0;     // cost of what others got since the last turn of the oldest call
    int64_t overtook_requests = 0;  // requests of others since the last one of the oldest block that waits
    // How far the class is ahead of the virtual time of the link, in units of the budget by weight. A class that could
    // not use its turns would fall behind. It counts as 0 then, so it saves up nothing. The virtual time itself is not
    // kept, so the numbers do not grow.
    double lead = 0;
    double share = 1;
  };

  bool granting() const { return options_.policy == SchedulePolicy::kGrants; }
  bool may_rank() const { return granting() || options_.policy == SchedulePolicy::kRolling; }
  int RankOf(const QueuedBlock& block) const;
  int RequestRankOf(const QueuedBlock& block, int rank) const;
  int HeldRankOf(const QueuedBlock& block, int rank) const;
  TimePoint LateAfter(const QueuedBlock& block) const;
  double WeightOf(size_t traffic_class) const {
    if (!budget_.class_weights().empty()) return budget_.class_weights()[traffic_class];
    return options_.classes.empty() ? 1 : options_.classes[traffic_class].weight;
  }
  bool OldestIsDue(size_t traffic_class) const { return classes_[traffic_class].overtook_bytes >= budget_.bytes(); }
  Call* FirstReady(size_t traffic_class) const;
  // The classes that would be granted bytes in their turn. With grants, a request without early bytes costs nothing,
  // and takes no turn.
  ClassBits UsingTurns() const {
    return granting() ? queue_.classes_with_turns() : queue_.classes_with_turns() | blocks_.waiting_classes();
  }
  bool HasTurn(size_t traffic_class) const;  // no class before it uses its turn
  void CountOvertaken(const Call& call, int64_t cost_bytes);
  void AddToLead(size_t traffic_class, int64_t cost_bytes);
  void Charge(size_t traffic_class, int64_t cost_bytes);
  void SortTurns();

  const ScheduleOptions& options_;
  BlockQueue& blocks_;
  QueuedWorkers& workers_;
  GrantQueue& queue_;
  SentCalls& sent_;
  const Budget& budget_;
  int64_t late_blocks_ = 0;
  std::vector<ServiceClass> classes_;
  std::vector<size_t> turns_;  // the classes with the smallest lead first
};

}  // namespace sluice
