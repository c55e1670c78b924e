#pragma once

#include <chrono>
#include <cstdint>

#include "sluice/time_point.h"

namespace sluice {

// For how long calls have waited for the budget, and how many bytes came in this time; see ScheduleState. There is one
// for each schedule. Not thread-safe.
class Backlog {
 public:
  // Records the end of an event. `waits`: a call waits for the budget from now on. The bytes of the event count in the
  // state before it: they were on the link then.
  void Count(TimePoint now, int64_t received_bytes, bool waits) {
    if (waits_) {
      time_ += now - counted_until_;
      bytes_ += received_bytes - counted_bytes_;
    }
    counted_until_ = now;
    counted_bytes_ = received_bytes;
    waits_ = waits;
  }
  std::chrono::nanoseconds time() const { return time_; }
  int64_t bytes() const { return bytes_; }

 private:
  TimePoint counted_until_;
  int64_t counted_bytes_ = 0;
  bool waits_ = false;
  std::chrono::nanoseconds time_{0};
  int64_t bytes_ = 0;
};

}  // namespace sluice
