#include "lib/scheduling/free_time.h"

#include <algorithm>
#include <cassert>
#include <iterator>

namespace sluice {

void FreeTime::Add(TimePoint begin, TimePoint end) {
  if (begin >= end) return;
  if (!intervals_.empty() && intervals_.back().end == begin) {
    intervals_.back().end = end;
    return;
  }
  assert(intervals_.empty() || intervals_.back().end < begin);
  intervals_.push_back({begin, end});
  if (intervals_.size() > kMost) intervals_.pop_front();
}

size_t FreeTime::FirstThatEndsAfter(TimePoint time) const {
  const auto ends_before = [](const Interval& interval, TimePoint at) { return interval.end <= at; };
  const auto found = std::lower_bound(intervals_.begin(), intervals_.end(), time, ends_before);
  return static_cast<size_t>(std::distance(intervals_.begin(), found));
}

void FreeTime::Take(TimePoint begin, TimePoint end) {
  if (begin >= end) return;
  size_t i = FirstThatEndsAfter(begin);
  if (i < intervals_.size() && intervals_[i].begin < begin && intervals_[i].end > end) {
    const Interval rest{end, intervals_[i].end};
    intervals_[i].end = begin;
    intervals_.insert(intervals_.begin() + static_cast<std::ptrdiff_t>(i) + 1, rest);
    if (intervals_.size() > kMost) intervals_.pop_front();
    return;
  }
  if (i < intervals_.size() && intervals_[i].begin < begin) intervals_[i++].end = begin;
  const size_t first = i;
  while (i < intervals_.size() && intervals_[i].end <= end) ++i;
  if (i < intervals_.size() && intervals_[i].begin < end) intervals_[i].begin = end;
  intervals_.erase(intervals_.begin() + static_cast<std::ptrdiff_t>(first),
                   intervals_.begin() + static_cast<std::ptrdiff_t>(i));
}

TimePoint FreeTime::TakeFirst(TimePoint begin, std::chrono::nanoseconds length) {
  assert(!intervals_.empty() && intervals_.back().end == TimePoint::max());
  TimePoint end = begin;
  for (size_t i = FirstThatEndsAfter(begin); i < intervals_.size(); ++i) {
    const TimePoint from = std::max(intervals_[i].begin, begin);
    const auto taken = std::min<std::chrono::nanoseconds>(intervals_[i].end - from, length);
    length -= taken;
    end = from + taken;
    if (length.count() == 0) break;
  }
  Take(begin, end);
  return end;
}

std::chrono::nanoseconds FreeTime::TakeBefore(TimePoint end) {
  std::chrono::nanoseconds taken{0};
  while (!intervals_.empty() && intervals_.front().begin < end) {
    Interval& first = intervals_.front();
    const TimePoint until = std::min(first.end, end);
    taken += until - first.begin;
    if (first.end > end) {
      first.begin = end;
      break;
    }
    intervals_.pop_front();
  }
  return taken;
}

}  // namespace sluice
