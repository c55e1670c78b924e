#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "tests/simulation/event_queue.h"

namespace sluice::testing {

// The switch port in front of the aggregator: it sends at the capacity of the link and holds a buffer of bytes; what
// does not fit is lost, and its sender repeats it after a retransmission timeout. One a simulated world.
class SimulatedPort {
 public:
  SimulatedPort(EventQueue& events, double bytes_per_second, int64_t buffer_bytes)
      : events_(events), byte_seconds_(1 / bytes_per_second), buffer_bytes_(buffer_bytes) {}

  // A packet of so many bytes arrives now; `deliver` runs when it is through. False: it is lost.
  bool Send(int64_t bytes, std::function<void()> deliver) {
    if (queued_bytes_ + bytes > buffer_bytes_) {
      ++lost_packets_;
      return false;
    }
    queued_bytes_ += bytes;
    most_queued_bytes_ = std::max(most_queued_bytes_, queued_bytes_);
    const auto duration = std::chrono::duration_cast<TimePoint::duration>(
        std::chrono::duration<double>(static_cast<double>(bytes) * byte_seconds_));
    free_at_ = std::max(free_at_, events_.now()) + duration;
    events_.At(free_at_, [this, bytes, deliver = std::move(deliver)] {
      queued_bytes_ -= bytes;
      deliver();
    });
    return true;
  }

  int64_t lost_packets() const { return lost_packets_; }
  int64_t most_queued_bytes() const { return most_queued_bytes_; }

 private:
  EventQueue& events_;
  const double byte_seconds_;
  const int64_t buffer_bytes_;
  TimePoint free_at_;
  int64_t queued_bytes_ = 0;
  int64_t most_queued_bytes_ = 0;
  int64_t lost_packets_ = 0;
};

}  // namespace sluice::testing
