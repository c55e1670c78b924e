#pragma once

#include <chrono>
#include <cstdint>
#include <deque>

#include "sluice/link_schedule.h"

namespace sluice {

// The bytes of the port buffer that answers in flight may take, and what they take. One a schedule, not thread-safe.
class Budget {
 public:
  explicit Budget(const LinkSchedule::Options& options);

  // Fits beside `reserved_bytes` that are kept for something else, or is alone.
  bool Fits(int64_t cost_bytes, int64_t reserved_bytes = 0) const;
  void Charge(int64_t cost_bytes);  // fits
  void Release(int64_t cost_bytes) { in_flight_bytes_ -= cost_bytes; }

  // What an aborted call had on the way may still arrive: its charge stays for a round trip and the time that a full
  // buffer takes to drain.
  void ReleaseAborted(TimePoint now, int64_t cost_bytes);
  void Drain(TimePoint now);
  TimePoint next_drain() const { return draining_.empty() ? TimePoint::max() : draining_.front().until; }

  void Set(int64_t bytes);  // charged more than the new budget: only drains
  int64_t bytes() const { return bytes_; }
  int64_t in_flight_bytes() const { return in_flight_bytes_; }

 private:
  struct Draining {
    TimePoint until;
    int64_t cost_bytes;
  };

  const bool limited_;  // false: unscheduled
  int64_t bytes_;
  const std::chrono::nanoseconds drain_time_;
  int64_t in_flight_bytes_ = 0;    // draining_ included
  std::deque<Draining> draining_;  // by time, since every abort drains for as long
};

}  // namespace sluice
