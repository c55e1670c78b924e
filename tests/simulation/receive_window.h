#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "lib/tcp/tcp_connection.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/simulated_stream.h"

namespace sluice::testing {

// The window of a buffer that was made by ReceiveBufferFor.
inline int64_t WindowOf(int receive_buffer_bytes) {
  constexpr int kSample = 1 << 20;
  const int64_t buffer_of_sample = ReceiveBufferFor(kSample);
  return (int64_t{receive_buffer_bytes} * kSample + buffer_of_sample - 1) / buffer_of_sample;
}

// TCP's flow control of the bytes that a worker sends to the proxy. The worker's kernel keeps what has no room in the
// window, and what has been advertised is never taken back. There is one for each connection of a byte tunnel.
class ReceiveWindow final : public std::enable_shared_from_this<ReceiveWindow> {
 public:
  // The pipe carries the worker's bytes; the other direction takes `delay`.
  ReceiveWindow(EventQueue& events, TimePoint::duration delay, int64_t bytes, std::shared_ptr<SimulatedPipe> pipe)
      : events_(events),
        delay_(delay),
        pipe_(std::move(pipe)),
        window_bytes_(bytes),
        edge_(bytes),
        known_edge_(bytes) {}

  // The worker's end.
  void Write(const std::string& bytes) {
    unsent_ += bytes;
    Send();
  }
  // Ends the connection after these bytes.
  void End(absl::Status why) {
    end_ = std::move(why);
    Send();
  }
  // Ends the connection at once.
  void Reset() {
    unsent_.clear();
    End(absl::UnavailableError("connection reset"));
  }

  // The proxy's end.
  void OnArrived(size_t bytes) {
    arrived_ += static_cast<int64_t>(bytes);
    Advertise();
  }
  void OnRead(size_t bytes) {
    read_ += static_cast<int64_t>(bytes);
    Advertise();
  }
  // Applies when bytes next arrive or are read: a larger window alone sends nothing.
  void Resize(int64_t bytes) { window_bytes_ = bytes; }
  int64_t advertised_bytes() const { return edge_ - arrived_; }

 private:
  static constexpr int64_t kPacketBytes = 1448;

  void Advertise() {
    const int64_t edge = std::max(edge_, read_ + window_bytes_);
    if (std::exchange(edge_, edge) == edge) return;
    events_.After(delay_, [self = shared_from_this(), edge] {
      self->known_edge_ = edge;
      self->Send();
    });
  }
  void Send() {
    while (!unsent_.empty() && sent_ < known_edge_) {
      const int64_t bytes =
          std::min<int64_t>({static_cast<int64_t>(unsent_.size()), known_edge_ - sent_, kPacketBytes});
      sent_ += bytes;
      pipe_->Write(unsent_.substr(0, static_cast<size_t>(bytes)));
      unsent_.erase(0, static_cast<size_t>(bytes));
    }
    if (unsent_.empty() && end_.has_value()) pipe_->End(*std::exchange(end_, std::nullopt));
  }

  EventQueue& events_;
  const TimePoint::duration delay_;
  const std::shared_ptr<SimulatedPipe> pipe_;
  std::string unsent_;
  std::optional<absl::Status> end_;
  int64_t window_bytes_;
  int64_t edge_;        // of the window that the proxy has advertised
  int64_t known_edge_;  // as far as the worker knows
  int64_t sent_ = 0;
  int64_t arrived_ = 0;
  int64_t read_ = 0;
};

}  // namespace sluice::testing
