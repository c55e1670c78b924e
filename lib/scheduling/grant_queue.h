#pragma once

#include <chrono>
#include <cstdint>

#include <boost/intrusive/set.hpp>

#include "sluice/time_point.h"

#include "lib/scheduling/call_table.h"
#include "lib/scheduling/queued_worker.h"

namespace sluice {

// The responses that are ready and wait for a grant, in the order of their turns. There is one for each schedule. Not
// thread-safe.
//
// The block that comes first by BlockOrder has the turn, and in the block the shortest rest of a message, in powers of
// two. Among equals the message comes first that was ready first, so messages come whole one after the other.
//
// Unwanted responses have turns only if no other response has one: their streams stay open, but they must not delay
// others. A response that was held for kHoldLimit comes first. Responses of a worker that has its share outstanding
// have no turn. They keep their place, are passed over, and delay no other response.
class GrantQueue {
 public:
  // Kestrel servers abort a connection if a write was blocked for 5 s.
  static constexpr std::chrono::seconds kHoldLimit{3};

  // Adds a call that is not in the queue.
  void Add(Call& call, TimePoint now);
  void Remove(Call& call);  // does nothing if the call is not in the queue

  // Sets whether the responses of the worker have turns.
  void SetOpen(QueuedWorker& worker, bool open);

  // Detach takes a call out of the order while the rank of its block changes. Attach puts it back.
  void Detach(Call& call);
  void Attach(Call& call);

  // Returns the call whose turn it is, or null. If `oldest_is_due`, the oldest call comes before all others.
  Call* Next(TimePoint now, bool oldest_is_due);

  // Return the first call by turn, and the oldest message of the oldest block. Null if no wanted call has a turn.
  Call* first() { return turns_.empty() ? nullptr : &*turns_.begin()->turns.begin(); }
  Call* oldest() { return by_age_.empty() ? nullptr : &*by_age_.begin()->by_age.begin(); }

  bool empty() const { return held_.empty(); }  // no call has a turn

 private:
  template <auto Calls, class CallKey>
  struct FirstKey {
    using type = typename CallKey::type;
    type operator()(const QueuedWorker& worker) const { return CallKey()(*(worker.*Calls).begin()); }
  };
  template <class Hook, class Key>
  using WorkerSet =
      boost::intrusive::set<QueuedWorker, boost::intrusive::base_hook<Hook>, boost::intrusive::key_of_value<Key>,
                            boost::intrusive::constant_time_size<false>>;

  void Unlink(QueuedWorker& worker);
  void Link(QueuedWorker& worker);

  // The workers that are open and have turns.
  WorkerSet<TurnWorkersHook, FirstKey<&QueuedWorker::turns, TurnKey>> turns_;
  WorkerSet<AgeWorkersHook, FirstKey<&QueuedWorker::by_age, AgeKey>> by_age_;
  WorkerSet<UnwantedWorkersHook, FirstKey<&QueuedWorker::unwanted, HeldKey>> unwanted_;
  WorkerSet<HeldWorkersHook, FirstKey<&QueuedWorker::all, HeldKey>> held_;
  uint64_t last_queued_ = 0;
};

}  // namespace sluice
