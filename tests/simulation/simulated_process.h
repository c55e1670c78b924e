#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "tests/simulation/event_queue.h"

namespace sluice::testing {

// The process of a worker, which may stop for a while: the host is out of CPU, or a garbage collector runs. Its kernel
// goes on, so what the process has written still leaves. One for each worker of a simulated world.
class SimulatedProcess {
 public:
  explicit SimulatedProcess(EventQueue& events) : events_(events) {}

  bool stopped() const { return events_.now() < until_; }
  // Stops it; `on_end` runs when it has done what waited. It must not be stopped.
  void Stop(TimePoint::duration pause, std::function<void()> on_end) {
    until_ = events_.now() + pause;
    stopped_time_ += pause;
    events_.At(until_, [this, on_end = std::move(on_end)] {
      for (const auto& task : std::exchange(tasks_, {})) task();
      on_end();
    });
  }

  // Runs `task` now, or when the process goes on, after those that came before.
  void Run(std::function<void()> task) {
    if (!stopped() && tasks_.empty()) return task();
    tasks_.push_back(std::move(task));
  }

  // Since the start.
  TimePoint::duration stopped_time() const {
    return stopped_time_ - std::max(until_ - events_.now(), TimePoint::duration(0));
  }

 private:
  EventQueue& events_;
  TimePoint until_;  // it is stopped
  TimePoint::duration stopped_time_{0};
  std::vector<std::function<void()>> tasks_;
};

}  // namespace sluice::testing
