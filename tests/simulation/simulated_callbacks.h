#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "lib/link/callbacks.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/faults.h"

namespace sluice::testing {

// Runs callbacks of the application on a thread of their own, one after the other. Most take microseconds; callbacks of
// a slow reader take milliseconds. A callback takes effect at the end of its time. There is one for each simulated
// world.
class SimulatedCallbacks final : public Callbacks {
 public:
  // One in `slow_one_in` callbacks is slow; 0: none.
  SimulatedCallbacks(EventQueue& events, Dice& dice, FaultCounts& faults, uint64_t slow_one_in)
      : events_(events), dice_(dice), faults_(faults), slow_one_in_(slow_one_in) {}

  void Run(Owner /*owner*/, std::function<void()> callback, When /*when*/) override {
    auto takes = std::chrono::microseconds(dice_.Between(0, 50));
    if (slow_one_in_ > 0 && dice_.OneIn(slow_one_in_)) {
      takes = std::chrono::microseconds(dice_.Between(1000, 20'000));
      faults_.Count(Fault::kSlowReader);
    }
    idle_at_ = std::max(idle_at_, events_.now()) + takes;
    taken_time_ += takes;
    longest_backlog_ = std::max(longest_backlog_, idle_at_ - events_.now());
    events_.At(idle_at_, std::move(callback));
  }

  // The longest time from a callback's submission to its end.
  TimePoint::duration longest_backlog() const { return longest_backlog_; }
  // The time in which callbacks ran, since the start.
  TimePoint::duration busy_time() const {
    return taken_time_ - std::max(idle_at_ - events_.now(), TimePoint::duration(0));
  }

 private:
  EventQueue& events_;
  Dice& dice_;
  FaultCounts& faults_;
  const uint64_t slow_one_in_;
  TimePoint idle_at_;
  TimePoint::duration taken_time_{0};
  TimePoint::duration longest_backlog_{0};
};

}  // namespace sluice::testing
