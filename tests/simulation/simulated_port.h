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

// The switch port in front of the aggregator. It sends at the capacity of the link, and has a buffer of bytes. A packet
// that does not fit is lost, and its sender repeats it after a retransmission timeout. There is one for each simulated
// world.
class SimulatedPort {
 public:
  // One in `loss_one_in` packets is lost for other reasons; 0: none.
  SimulatedPort(EventQueue& events, Dice& dice, FaultCounts& faults, double bytes_per_second, int64_t buffer_bytes,
                uint64_t loss_one_in)
      : events_(events),
        dice_(dice),
        faults_(faults),
        byte_seconds_(1 / bytes_per_second),
        buffer_bytes_(buffer_bytes),
        loss_one_in_(loss_one_in) {}

  // A packet that arrives, perhaps through the slow uplink of its worker.
  struct Packet {
    int64_t bytes = 0;
    bool slow = false;
    // Returns the time until which the budget is charged for the packet, as far as it is decided now.
    std::function<TimePoint()> charged_until = [] { return TimePoint::max(); };
  };
  // Sends a packet; `deliver` runs once it has crossed the port. Returns false if the packet is lost.
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
    if (slow) slow_bytes_ += bytes;
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

  TimePoint::duration sent_time() const { return sent_time_; }  // for all packets, since the start
  // How often the port became busy again, except with packets of slow uplinks only.
  int64_t busy_times() const { return busy_times_; }
  int64_t slow_bytes() const { return slow_bytes_; }  // of packets of slow uplinks, since the start
  // Reports that a lost packet is about to be sent again.
  void Repeat() { ++repeated_packets_; }
  int64_t lost_packets() const { return lost_packets_; }
  int64_t repeated_packets() const { return repeated_packets_; }
  // Sets the function that runs when a packet is lost for lack of room. `beyond_bytes` are the charged bytes that do
  // not fit. They are 0 or less if all charged bytes would fit.
  void SetOnOverflow(std::function<void(int64_t beyond_bytes)> on_overflow) { on_overflow_ = std::move(on_overflow); }
  int64_t most_queued_bytes() const { return most_queued_bytes_; }
  // The longest time from the end of a packet's charge until the packet was through.
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
  bool only_slow_ = true;  // since the port was last idle
  int64_t busy_times_ = 0;
  int64_t slow_bytes_ = 0;
  std::deque<Packet> queue_;
  int64_t queued_bytes_ = 0;  // the sum of queue_
  int64_t most_queued_bytes_ = 0;
  TimePoint::duration latest_{0};
  int64_t lost_packets_ = 0;
  int64_t repeated_packets_ = 0;
};

}  // namespace sluice::testing
