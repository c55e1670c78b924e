#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "tests/simulation/event_queue.h"

namespace sluice::testing {

// The process of a worker. It may stop for a while: the host is out of CPU time, or a garbage collector runs. Its
// kernel continues, so bytes that the process has written still leave. There is one for each worker of a simulated
// world.
class SimulatedProcess {
 public:
  explicit SimulatedProcess(EventQueue& events) : events_(events) {}

  bool stopped() const { return events_.now() < until_; }
  // Stops a running process; `on_end` runs after the tasks that waited for its end.
  void Stop(TimePoint::duration pause, std::function<void()> on_end) {
    until_ = events_.now() + pause;
    stopped_time_ += pause;
    events_.At(until_, [this, on_end = std::move(on_end)] {
      for (const auto& task : std::exchange(tasks_, {})) task();
      on_end();
    });
  }

  // Runs `task` now, or once the process continues, after earlier tasks.
  void Run(std::function<void()> task) {
    if (!stopped() && tasks_.empty()) return task();
    tasks_.push_back(std::move(task));
  }

  // The time in which the process was stopped, since the start.
  TimePoint::duration stopped_time() const {
    return stopped_time_ - std::max(until_ - events_.now(), TimePoint::duration(0));
  }

 private:
  EventQueue& events_;
  TimePoint until_;  // the end of the stop
  TimePoint::duration stopped_time_{0};
  std::vector<std::function<void()>> tasks_;
};

}  // namespace sluice::testing
