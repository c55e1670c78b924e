#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <unordered_map>

namespace sluice {

// The order in which callbacks run, on one thread or several. Callbacks of one owner (a fan-out or a read) run in the
// order of arrival, and never two at a time. Owners take turns, measured by the run time of their callbacks: a slow
// owner gets the same time as each other owner that has callbacks. There is one for each link. It reads no clock. Not
// thread-safe.
//
// Deficit round robin, in units of time: an owner that exceeded its turn waits that number of turns of the others.
// Rejected: the order of arrival, which limits each owner to the throughput of the slowest one.
class CallbackQueue {
 public:
  using Owner = const void*;
  using Duration = std::chrono::nanoseconds;
  static constexpr Duration kTurn = std::chrono::milliseconds(1);
  static constexpr Duration kMaxDebt = std::chrono::milliseconds(100);

  struct Callback {
    Owner owner = nullptr;
    std::function<void()> run;
  };

  void Push(Callback callback);
  // Returns true if no callback may run now. Callbacks may still wait for a running callback of their owner.
  bool empty() const { return ready_ == 0; }
  // Returns the next callback; the queue must not be empty. The caller reports its run time with Took afterwards.
  Callback Pop();
  void Took(Owner owner, Duration time);

 private:
  struct Turn {
    Owner owner = nullptr;
    std::deque<std::function<void()>> callbacks;
    Duration left = kTurn;  // negative: a debt
    bool runs = false;      // a callback of this owner runs
  };
  using Turns = std::list<Turn>;

  Turns turns_;  // the owner at the front runs next, or continues its turn
  Turns running_;
  std::unordered_map<Owner, Turns::iterator> turns_by_owner_;  // of turns_ and of running_
  size_t ready_ = 0;                                           // callbacks in turns_
};

}  // namespace sluice
