#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "lib/scheduling/link_schedule.h"

namespace sluice {

// A switch port as a fluid: a drop-tail buffer that drains at a whole number of nanoseconds per byte, so no time is
// rounded. Not thread-safe.
class PortModel {
 public:
  PortModel(int64_t buffer_bytes, std::chrono::nanoseconds byte_time)
      : buffer_bytes_(buffer_bytes), byte_time_(byte_time) {}

  // Puts bytes into the buffer at once. Returns the time when the last byte has left, or nullopt if the bytes do not
  // all fit. The buffer may hold `slack_bytes` more than its size.
  std::optional<TimePoint> Burst(TimePoint now, int64_t bytes, int64_t slack_bytes = 0) {
    const std::chrono::nanoseconds backlog = std::max(free_at_ - now, std::chrono::nanoseconds(0));
    if (backlog + bytes * byte_time_ > (buffer_bytes_ + slack_bytes) * byte_time_) return std::nullopt;
    free_at_ = now + backlog + bytes * byte_time_;
    return free_at_;
  }

  // Sends bytes of a single sender that adapts to the link and keeps it busy. Returns nullopt if the port is busy.
  std::optional<TimePoint> Stream(TimePoint now, int64_t bytes) {
    if (free_at_ > now) return std::nullopt;
    return free_at_ = now + bytes * byte_time_;
  }
  TimePoint free_at() const { return free_at_; }  // the buffer is empty from then on
  void StopStream(TimePoint at) { free_at_ = std::min(free_at_, at); }

 private:
  const int64_t buffer_bytes_;
  const std::chrono::nanoseconds byte_time_;
  TimePoint free_at_ = TimePoint();
};

}  // namespace sluice
