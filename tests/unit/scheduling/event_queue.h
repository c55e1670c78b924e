#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "lib/scheduling/link_schedule.h"

namespace sluice {

// The events of a simulation, ordered by time and then by insertion. There is one for each simulation.
class EventQueue {
 public:
  void At(TimePoint at, std::function<void()> run) { events_.push({at, next_order_++, std::move(run)}); }
  bool empty() const { return events_.empty(); }
  TimePoint next() const { return events_.empty() ? TimePoint::max() : events_.top().at; }
  std::function<void()> Take() {
    std::function<void()> run = events_.top().run;
    events_.pop();
    return run;
  }

 private:
  struct Event {
    TimePoint at;
    uint64_t order;
    std::function<void()> run;
    bool operator>(const Event& other) const { return std::pair(at, order) > std::pair(other.at, other.order); }
  };

  uint64_t next_order_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace sluice
