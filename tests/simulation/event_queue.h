#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "lib/scheduling/link_schedule.h"

namespace sluice::testing {

// Virtual time: the queue of events. Events of the same time run in the order in which they were added, so every run is
// the same. There is one for each simulated world. Not thread-safe.
class EventQueue {
 public:
  using Id = std::pair<TimePoint, uint64_t>;

  TimePoint now() const { return now_; }
  Id At(TimePoint time, std::function<void()> event) {
    const Id id(std::max(time, now_), ++last_);
    events_.emplace(id, std::move(event));
    return id;
  }
  Id After(TimePoint::duration pause, std::function<void()> event) { return At(now_ + pause, std::move(event)); }
  void Cancel(const Id& id) { events_.erase(id); }

  // Runs the next event. Returns false if no event is due until `end`.
  bool Step(TimePoint end) {
    if (events_.empty() || events_.begin()->first.first > end) return false;
    const auto next = events_.extract(events_.begin());
    now_ = next.key().first;
    next.mapped()();
    return true;
  }

 private:
  TimePoint now_ = TimePoint() + std::chrono::hours(1);
  std::map<Id, std::function<void()>> events_;
  uint64_t last_ = 0;
};

}  // namespace sluice::testing
