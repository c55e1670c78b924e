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
// A response is new if nothing of it was granted since it became ready. New responses of the oldest block come first,
// and within a block the response that was ready first. A rest is the remainder of a response that was granted in part.
// Rests come after new responses, so that small responses need not wait for a large one, and take turns. Between two
// turns of a rest, new responses get at most one budget, and each other rest one part.
//
// Unwanted responses have turns only if no other response has one: their streams stay open, but they must not delay
// others. A response that was held for kHoldLimit comes first. Responses of a worker that has its share outstanding
// have no turn. They keep their place, are passed over, and delay no other response.
class GrantQueue {
 public:
  // Kestrel servers abort a connection if a write was blocked for 5 s.
  static constexpr std::chrono::seconds kHoldLimit{3};

  // Add a call that is not in the queue. An unwanted call becomes neither new nor a rest.
  void AddNew(Call& call, TimePoint now);
  void AddRest(Call& call, TimePoint now);
  void Remove(Call& call);  // does nothing if the call is not in the queue

  // Sets whether the responses of the worker have turns.
  void SetOpen(QueuedWorker& worker, bool open);

  // Returns the call whose turn it is, or null.
  Call* Next(TimePoint now, int64_t budget_bytes);

  // Removes a call that had its turn and was granted bytes of this cost.
  void Take(Call& call, int64_t cost_bytes);

  // Returns whether a call that is not in the queue may leave with a grant now. It counts as new, after the queued
  // calls.
  bool MayOvertake(int64_t budget_bytes) const { return new_.empty() && !RestIsDue(budget_bytes); }
  void Overtook(int64_t cost_bytes);

  bool empty() const { return held_.empty(); }  // no call has a turn

 private:
  struct FirstNewKey {
    using type = NewTurnKey::type;
    type operator()(const QueuedWorker& worker) const { return NewTurnKey()(*worker.new_turns.begin()); }
  };
  struct FirstRestKey {
    using type = TurnKey::type;
    type operator()(const QueuedWorker& worker) const { return worker.rests.begin()->place; }
  };
  struct FirstUnwantedKey {
    using type = TurnKey::type;
    type operator()(const QueuedWorker& worker) const { return worker.unwanted.begin()->place; }
  };
  struct FirstTurnKey {
    using type = TurnKey::type;
    type operator()(const QueuedWorker& worker) const { return worker.turns.begin()->place; }
  };
  template <class Hook, class Key>
  using WorkerSet =
      boost::intrusive::set<QueuedWorker, boost::intrusive::base_hook<Hook>, boost::intrusive::key_of_value<Key>,
                            boost::intrusive::constant_time_size<false>>;

  void Add(Call& call, Call::Turn turn, TimePoint now);
  static void Insert(Call& call);
  static void Erase(Call& call);
  void Unlink(QueuedWorker& worker);
  void Link(QueuedWorker& worker);
  bool RestIsDue(int64_t budget_bytes) const;

  // The workers that are open and have turns.
  WorkerSet<NewWorkersHook, FirstNewKey> new_;
  WorkerSet<RestWorkersHook, FirstRestKey> rests_;
  WorkerSet<UnwantedWorkersHook, FirstUnwantedKey> unwanted_;
  WorkerSet<HeldWorkersHook, FirstTurnKey> held_;
  int64_t rest_calls_ = 0;      // number of rests of these workers
  int64_t overtook_bytes_ = 0;  // cost of new responses since the last turn of a rest
  uint64_t last_place_ = 0;
};

}  // namespace sluice
