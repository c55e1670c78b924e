#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

#include "tests/simulation/event_queue.h"

namespace sluice::testing {

// The link between a worker and the network. It sends at its own rate, and its queue is unbounded, so it loses nothing.
// There is one for each worker of a simulated world.
class SimulatedUplink {
 public:
  explicit SimulatedUplink(EventQueue& events) : events_(events) {}

  // Applies from the next packet on. 0: sending takes no time.
  void SetRate(double bytes_per_second) { bytes_per_second_ = bytes_per_second; }
  bool slow() const { return bytes_per_second_ > 0; }

  // Sends a packet of `bytes` that arrives now; `leave` runs once the link has sent it.
  void Send(int64_t bytes, std::function<void()> leave) {
    packets_.push_back({bytes, std::move(leave)});
    if (packets_.size() > 1) return;
    if (slow()) ++busy_times_;
    SendNext();
  }

  // The time in which the link sent packets, since the start.
  TimePoint::duration busy_time() const {
    return busy_time_ + (packets_.empty() ? TimePoint::duration(0) : events_.now() - sending_since_);
  }
  int64_t busy_times() const { return busy_times_; }  // how often it became busy again while slow

 private:
  struct Packet {
    int64_t bytes = 0;
    std::function<void()> leave;
  };

  void SendNext() {
    while (!packets_.empty()) {
      sending_since_ = events_.now();
      if (slow()) {
        const std::chrono::duration<double> time(static_cast<double>(packets_.front().bytes) / bytes_per_second_);
        events_.After(std::chrono::duration_cast<TimePoint::duration>(time), [this] {
          busy_time_ += events_.now() - sending_since_;
          Leave();
          SendNext();
        });
        return;
      }
      Leave();
    }
  }
  void Leave() {
    const Packet packet = std::move(packets_.front());
    packets_.pop_front();
    packet.leave();
  }

  EventQueue& events_;
  double bytes_per_second_ = 0;
  std::deque<Packet> packets_;  // the first one is being sent
  TimePoint sending_since_;
  TimePoint::duration busy_time_{0};
  int64_t busy_times_ = 0;
};

}  // namespace sluice::testing
