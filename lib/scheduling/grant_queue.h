#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <boost/intrusive/set.hpp>

#include "lib/scheduling/call_table.h"
#include "lib/scheduling/queued_worker.h"

namespace sluice {

// The responses that are ready and wait for a grant, in the order of their turns. There is one for each schedule. Not
// thread-safe.
//
// In a class, the block that comes first by BlockOrder has the turn, and in the block the shortest rest of a message,
// in powers of two. Among equals the message comes first that was ready first, so messages come whole one after the
// other.
//
// Unwanted responses have turns only if no other response has one: their streams stay open, but they must not delay
// others. Responses of a worker that has its share outstanding have no turn. They keep their place, are passed over,
// and delay no other response.
class GrantQueue {
 public:
  explicit GrantQueue(size_t classes) : classes_(classes) {}

  // Adds a call that is not in the queue.
  void Add(Call& call);
  void Remove(Call& call);  // does nothing if the call is not in the queue

  // Sets whether the responses of the worker have turns.
  void SetOpen(QueuedWorker& worker, bool open);

  // Detach takes a call out of the order while the rank of its block changes. Attach puts it back.
  void Detach(Call& call);
  void Attach(Call& call);

  // Return the first call of the class by turn, and the oldest message of its oldest block. Null if no wanted call of
  // the class has a turn.
  Call* first(size_t traffic_class) {
    auto& turns = classes_[traffic_class].turns;
    return turns.empty() ? nullptr : &*turns.begin()->turns.begin();
  }
  Call* oldest(size_t traffic_class) {
    auto& by_age = classes_[traffic_class].by_age;
    return by_age.empty() ? nullptr : &*by_age.begin()->by_age.begin();
  }
  Call* first_unwanted() { return unwanted_.empty() ? nullptr : &*unwanted_.begin()->unwanted.begin(); }

  bool empty() const { return classes_with_turns_.none() && unwanted_.empty(); }  // no call has a turn
  const ClassBits& classes_with_turns() const { return classes_with_turns_; }     // of wanted calls

 private:
  template <class Calls, auto Set, class CallKey>
  struct FirstKey {
    using type = typename CallKey::type;
    type operator()(const Calls& calls) const { return CallKey()(*(calls.*Set).begin()); }
  };
  template <class Calls, class Hook, auto Set, class CallKey>
  using FirstSet = boost::intrusive::set<Calls, boost::intrusive::base_hook<Hook>,
                                         boost::intrusive::key_of_value<FirstKey<Calls, Set, CallKey>>,
                                         boost::intrusive::constant_time_size<false>>;
  // The calls of one class at the workers that are open and have turns.
  struct ClassTurns {
    FirstSet<ClassCalls, TurnWorkersHook, &ClassCalls::turns, TurnKey> turns;
    FirstSet<ClassCalls, AgeWorkersHook, &ClassCalls::by_age, AgeKey> by_age;
  };

  void Unlink(QueuedWorker& worker);
  void Unlink(QueuedWorker& worker, size_t traffic_class);
  void Link(QueuedWorker& worker);
  void Link(QueuedWorker& worker, size_t traffic_class);

  std::vector<ClassTurns> classes_;
  ClassBits classes_with_turns_;
  // The workers that are open and have turns.
  FirstSet<QueuedWorker, UnwantedWorkersHook, &QueuedWorker::unwanted, QueuedKey> unwanted_;
  uint64_t last_queued_ = 0;
};

}  // namespace sluice
