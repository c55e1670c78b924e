#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "tests/simulation/event_queue.h"
#include "tests/simulation/faults.h"

namespace sluice::testing {

// The switch port in front of the aggregator: it sends at the capacity of the link and holds a buffer of bytes; what
// does not fit is lost, and its sender repeats it after a retransmission timeout. One a simulated world.
class SimulatedPort {
 public:
  // One packet in so many is lost for other reasons; 0: none.
  SimulatedPort(EventQueue& events, Dice& dice, FaultCounts& faults, double bytes_per_second, int64_t buffer_bytes,
                uint64_t loss_one_in)
      : events_(events),
        dice_(dice),
        faults_(faults),
        byte_seconds_(1 / bytes_per_second),
        buffer_bytes_(buffer_bytes),
        loss_one_in_(loss_one_in) {}

  // A packet of so many bytes arrives now; `deliver` runs when it is through. False: it is lost.
  bool Send(int64_t bytes, std::function<void()> deliver) {
    const bool overflows = queued_bytes_ + bytes > buffer_bytes_;
    if (overflows || (loss_one_in_ > 0 && dice_.OneIn(loss_one_in_))) {
      if (overflows) ++overflows_;
      ++lost_packets_;
      faults_.Count(Fault::kPacketLost);
      return false;
    }
    queued_bytes_ += bytes;
    most_queued_bytes_ = std::max(most_queued_bytes_, queued_bytes_);
    const auto duration = std::chrono::duration_cast<TimePoint::duration>(
        std::chrono::duration<double>(static_cast<double>(bytes) * byte_seconds_));
    if (free_at_ < events_.now()) ++busy_times_;
    free_at_ = std::max(free_at_, events_.now()) + duration;
    sent_time_ += duration;
    events_.At(free_at_, [this, bytes, deliver = std::move(deliver)] {
      queued_bytes_ -= bytes;
      deliver();
    });
    return true;
  }

  TimePoint::duration sent_time() const { return sent_time_; }  // that it was busy, since the start
  int64_t busy_times() const { return busy_times_; }            // how often it had something to send again
  int64_t lost_packets() const { return lost_packets_; }
  int64_t overflows() const { return overflows_; }  // packets that were lost since there was no room
  int64_t most_queued_bytes() const { return most_queued_bytes_; }

 private:
  EventQueue& events_;
  Dice& dice_;
  FaultCounts& faults_;
  const double byte_seconds_;
  const int64_t buffer_bytes_;
  const uint64_t loss_one_in_;
  TimePoint free_at_;
  TimePoint::duration sent_time_{0};
  int64_t busy_times_ = 0;
  int64_t queued_bytes_ = 0;
  int64_t most_queued_bytes_ = 0;
  int64_t lost_packets_ = 0;
  int64_t overflows_ = 0;
};

}  // namespace sluice::testing
