#pragma once

#include <chrono>
#include <cstddef>
#include <deque>

#include "sluice/time_point.h"

namespace sluice {

// The intervals of time that are free, in order. Plain value. At most kMost: if there are more, the oldest are
// forgotten.
class FreeTime {
 public:
  static constexpr size_t kMost = 512;

  FreeTime() = default;
  // All time from `begin` on is free.
  explicit FreeTime(TimePoint begin) { Add(begin, TimePoint::max()); }

  // Adds an interval that does not begin before the end of the last one. Ignored if it is empty.
  void Add(TimePoint begin, TimePoint end);
  // Takes all free time of an interval.
  void Take(TimePoint begin, TimePoint end);
  // Takes the first `length` of free time from `begin` on. Returns its end. The last interval must have no end.
  TimePoint TakeFirst(TimePoint begin, std::chrono::nanoseconds length);
  // Takes all time before `end`. Returns how much was free.
  std::chrono::nanoseconds TakeBefore(TimePoint end);

 private:
  struct Interval {
    TimePoint begin;
    TimePoint end;
  };
  size_t FirstThatEndsAfter(TimePoint time) const;

  std::deque<Interval> intervals_;
};

}  // namespace sluice
