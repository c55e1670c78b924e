#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <unordered_map>

namespace sluice {

// The order in which callbacks run. Those of one owner, a fan-out or a read, run in the order in which they came.
// Owners take turns by the time that their callbacks take: a slow one gets as much of it as each of the others that
// want it. There is one for each thread of callbacks. It reads no clock. Not thread-safe.
//
// Deficit round robin, in units of time: an owner that took more than its turn waits for so many turns of the others.
// Rejected: the order in which they came, by which each owner gets as many bytes through as the slowest one.
class CallbackQueue {
 public:
  using Owner = const void*;
  using Duration = std::chrono::nanoseconds;
  static constexpr Duration kTurn = std::chrono::milliseconds(1);
  static constexpr Duration kMostDebt = std::chrono::milliseconds(100);

  void Push(Owner owner, std::function<void()> callback);
  bool empty() const { return waiting_ == 0; }
  // Returns the next callback. Took follows, with the time that it has run for. Must not be empty.
  std::function<void()> Pop();
  void Took(Duration time);

 private:
  struct Turn {
    Owner owner = nullptr;
    std::deque<std::function<void()>> callbacks;
    Duration left = kTurn;  // negative: a debt
  };

  std::list<Turn> turns_;  // the first one's comes next, or goes on
  std::unordered_map<Owner, std::list<Turn>::iterator> turns_by_owner_;
  size_t waiting_ = 0;  // callbacks
};

}  // namespace sluice
