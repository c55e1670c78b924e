#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "sluice/time_point.h"

namespace sluice {

// The timers of one link, except the timers of its schedule: back-off, hedges, deadlines, looks at connections. There
// is one for each link, used on the link's thread only. It reads no clock.
class TimerQueue {
 public:
  // Names a timer that is set. The default names none.
  using Id = std::pair<TimePoint, uint64_t>;

  Id Set(TimePoint due, std::function<void()> task) {
    const Id id(due, ++last_);
    tasks_.emplace(id, std::move(task));
    return id;
  }
  // Removes the timer and clears `id`. Does nothing for a timer that has run or was never set.
  void Clear(Id& id) { tasks_.erase(std::exchange(id, Id())); }

  TimePoint next() const { return tasks_.empty() ? TimePoint::max() : tasks_.begin()->first.first; }

  // Runs the tasks that are due at `now`. Tasks that they set for `now` themselves run later, so that the loop ends.
  void RunDue(TimePoint now) {
    const uint64_t last = last_;
    for (auto next = tasks_.begin(); next != tasks_.end() && next->first.first <= now; next = tasks_.begin()) {
      if (next->first.second > last) return;
      const auto task = tasks_.extract(next);
      task.mapped()();
    }
  }

 private:
  std::map<Id, std::function<void()>> tasks_;
  uint64_t last_ = 0;
};

}  // namespace sluice
