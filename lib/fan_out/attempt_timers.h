#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "lib/fan_out/attempts.h"

namespace sluice {

// When the attempts of a fan-out time out, and when their hedges are due. There is one for each fan-out. Not
// thread-safe. It reads no clock.
class AttemptTimers {
 public:
  // InfiniteDuration: no attempt times out. Without `hedge_after` there are no hedges.
  AttemptTimers(absl::Duration attempt_timeout, std::optional<absl::Duration> hedge_after);

  bool hedges() const { return hedge_after_.has_value(); }
  void AddHedge(TimePoint now, size_t attempt);  // after its request was sent
  // The worker's time runs again, or stops, because its response is held.
  void StartTimeout(TimePoint now, size_t attempt, const AttemptTime& time);
  void StopTimeout(TimePoint now, size_t attempt, const AttemptTime& time);

  // Removes the next attempt whose time has come, and returns it.
  std::optional<size_t> TakeTimeout(TimePoint now);
  std::optional<size_t> TakeHedge(TimePoint now);

  // Skips attempts that have ended or are no longer live. Without that, they would wake the fan-out for nothing.
  void SkipEnded(const Attempts& attempts) {
    while (next_hedge_ < hedges_.size() && !attempts[hedges_[next_hedge_].attempt].live) ++next_hedge_;
    while (!timeouts_.empty() && !attempts[timeouts_.begin()->second].MayTimeOut()) timeouts_.erase(timeouts_.begin());
  }
  TimePoint Next() const;  // TimePoint::max() if there is none

 private:
  struct Hedge {
    TimePoint at;
    size_t attempt = 0;
  };

  TimePoint TimeoutOf(TimePoint now, const AttemptTime& time) const;

  const std::optional<std::chrono::nanoseconds> attempt_timeout_;
  const std::optional<std::chrono::nanoseconds> hedge_after_;
  std::set<std::pair<TimePoint, size_t>> timeouts_;  // without attempts whose response is held
  // A queue that only grows, by at most one entry for each attempt, with the index of its first entry. A std::deque
  // would allocate and free memory as it advances. Times are in order, because all entries wait equally long.
  std::vector<Hedge> hedges_;
  size_t next_hedge_ = 0;
};

}  // namespace sluice
