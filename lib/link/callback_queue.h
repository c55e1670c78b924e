#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <unordered_map>

namespace sluice {

// The order in which callbacks run, on one thread or on several. Callbacks of one owner, a fan-out or a read, run in
// the order in which they came, and never two at a time. Owners take turns by the time that their callbacks take: a
// slow owner gets as much of it as each of the others that want it. There is one for each link. It reads no clock. Not
// thread-safe.
//
// Deficit round robin, in units of time: an owner that took more than its turn waits for so many turns of the others.
// Rejected: the order in which they came, by which each owner gets as many bytes through as the slowest one.
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
  // No callback may run now. Others may wait for one of their owner that runs.
  bool empty() const { return ready_ == 0; }
  // Returns the next callback. Took follows, with the time that it has run for. Must not be empty.
  Callback Pop();
  void Took(Owner owner, Duration time);

 private:
  struct Turn {
    Owner owner = nullptr;
    std::deque<std::function<void()>> callbacks;
    Duration left = kTurn;  // negative: a debt
    bool runs = false;      // one of its callbacks does
  };
  using Turns = std::list<Turn>;

  Turns turns_;  // the first one's comes next, or goes on
  Turns running_;
  std::unordered_map<Owner, Turns::iterator> turns_by_owner_;  // both
  size_t ready_ = 0;                                           // callbacks in turns_
};

}  // namespace sluice
