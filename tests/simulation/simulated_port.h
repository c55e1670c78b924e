#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
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

  // A packet arrives, perhaps by the slow uplink of its worker.
  struct Packet {
    int64_t bytes = 0;
    bool slow = false;
    // Until when the budget is charged for it, as far as that is decided now.
    std::function<TimePoint()> charged_until = [] { return TimePoint::max(); };
  };
  // `deliver` runs when it is through. False: it is lost.
  bool Send(Packet packet, std::function<void()> deliver) {
    const int64_t bytes = packet.bytes;
    const bool slow = packet.slow;
    const bool overflows = queued_bytes_ + bytes > buffer_bytes_;
    if (overflows || (loss_one_in_ > 0 && dice_.OneIn(loss_one_in_))) {
      if (overflows) on_overflow_(ChargedBytes() + (IsCharged(packet) ? bytes : 0) - buffer_bytes_);
      ++lost_packets_;
      faults_.Count(Fault::kPacketLost);
      return false;
    }
    queue_.push_back(std::move(packet));
    queued_bytes_ += bytes;
    most_queued_bytes_ = std::max(most_queued_bytes_, queued_bytes_);
    const auto duration = std::chrono::duration_cast<TimePoint::duration>(
        std::chrono::duration<double>(static_cast<double>(bytes) * byte_seconds_));
    if (free_at_ < events_.now()) only_slow_ = true;
    if (!slow && std::exchange(only_slow_, false)) ++busy_times_;
    free_at_ = std::max(free_at_, events_.now()) + duration;
    sent_time_ += duration;
    events_.At(free_at_, [this, bytes, deliver = std::move(deliver)] {
      const TimePoint until = queue_.front().charged_until();
      if (until < events_.now()) latest_ = std::max(latest_, events_.now() - until);
      queue_.pop_front();
      queued_bytes_ -= bytes;
      deliver();
    });
    return true;
  }

  TimePoint::duration sent_time() const { return sent_time_; }  // of all that was to be sent, since the start
  // How often it had something to send again, except from slow uplinks alone.
  int64_t busy_times() const { return busy_times_; }
  // A lost packet is about to come again.
  void Repeat() { ++repeated_packets_; }
  int64_t lost_packets() const { return lost_packets_; }
  int64_t repeated_packets() const { return repeated_packets_; }
  // Runs when a packet is lost since there is no room. `beyond_bytes` of what the budget is charged for do not fit; 0
  // or less if all of that would.
  void SetOnOverflow(std::function<void(int64_t beyond_bytes)> on_overflow) { on_overflow_ = std::move(on_overflow); }
  int64_t most_queued_bytes() const { return most_queued_bytes_; }
  // How long after its charge a packet was through, at most.
  TimePoint::duration latest() const { return latest_; }

 private:
  bool IsCharged(const Packet& packet) const { return events_.now() < packet.charged_until(); }
  int64_t ChargedBytes() const {
    int64_t bytes = 0;
    for (const Packet& packet : queue_) bytes += IsCharged(packet) ? packet.bytes : 0;
    return bytes;
  }

  EventQueue& events_;
  Dice& dice_;
  FaultCounts& faults_;
  const double byte_seconds_;
  const int64_t buffer_bytes_;
  const uint64_t loss_one_in_;
  std::function<void(int64_t)> on_overflow_ = [](int64_t) {};
  TimePoint free_at_;
  TimePoint::duration sent_time_{0};
  bool only_slow_ = true;  // since it had something to send again
  int64_t busy_times_ = 0;
  std::deque<Packet> queue_;
  int64_t queued_bytes_ = 0;  // the sum of queue_
  int64_t most_queued_bytes_ = 0;
  TimePoint::duration latest_{0};
  int64_t lost_packets_ = 0;
  int64_t repeated_packets_ = 0;
};

}  // namespace sluice::testing
