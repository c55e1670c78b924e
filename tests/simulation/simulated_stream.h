#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/frame_reader.h"
#include "tests/simulation/simulated_port.h"
#include "tests/simulation/simulated_uplink.h"

namespace sluice::testing {

// One direction of a TCP connection: bytes arrive in order and once. Bytes to the aggregator leave their worker through
// its uplink, and cross the aggregator's port in full packets. If a packet is lost, they wait for a retransmission
// timeout. The other direction only has a delay.
class SimulatedPipe : public std::enable_shared_from_this<SimulatedPipe> {
 public:
  // Returns the time until which the client charges its budget for headers and DATA of these streams, or for other
  // bytes if there are none.
  using ChargedUntil = std::function<TimePoint(const std::vector<uint32_t>& streams)>;
  // The path to the aggregator. `uplink` and `port` must outlive the pipe. Without `charged_until` the client always
  // charges its budget.
  struct Way {
    SimulatedUplink& uplink;
    SimulatedPort& port;
    ChargedUntil charged_until = nullptr;
  };
  // Without a `way` this direction has no bottleneck.
  SimulatedPipe(EventQueue& events, std::optional<Way> way, TimePoint::duration delay,
                std::function<void(absl::string_view)> on_bytes, std::function<void(absl::Status)> on_end)
      : events_(events),
        way_(std::move(way)),
        delay_(delay),
        on_bytes_(std::move(on_bytes)),
        on_end_(std::move(on_end)) {}

  void Write(absl::string_view bytes, bool framed = true) {
    for (size_t begin = 0; begin < bytes.size(); begin += kPayloadBytes) {
      Packet packet{.bytes = std::string(bytes.substr(begin, kPayloadBytes))};
      if (framed) packet.streams = StreamsIn(packet.bytes);
      Leave(std::move(packet));
    }
  }
  // Writes bytes that are no HTTP/2, between two frames.
  void WriteUnframed(absl::string_view bytes) { Write(bytes, false); }
  // Ends the connection for the other side, after all bytes that were written.
  void End(absl::Status why) { Leave({.end = std::move(why), .last = true}); }
  // Stops all delivery: the receiver is gone.
  void Cut() {
    on_bytes_ = nullptr;
    on_end_ = nullptr;
  }

 private:
  static constexpr size_t kPayloadBytes = 1448;
  // Overhead of a packet: Ethernet, IP, and TCP with timestamps.
  static constexpr int64_t kPacketBytes = 66;
  static constexpr std::chrono::milliseconds kRto{200};

  struct Packet {
    std::string bytes;
    std::vector<uint32_t> streams;  // streams with headers or DATA in the packet
    absl::Status end;
    bool last = false;
  };

  std::vector<uint32_t> StreamsIn(absl::string_view bytes) {
    std::vector<uint32_t> streams;
    if (!way_.has_value() || way_->charged_until == nullptr) return streams;
    frames_.Read(
        bytes,
        [&] {
          if (frames_.type() == FrameReader::kHeaders) streams.push_back(frames_.stream());
        },
        [&](absl::string_view data) {
          if (!data.empty()) streams.push_back(frames_.stream());
        });
    return streams;
  }

  void Leave(Packet packet) {
    const int64_t bytes = BytesOf(packet);
    auto arrive = [self = shared_from_this(), packet = std::move(packet)]() mutable {
      self->events_.After(self->delay_, [self, packet = std::move(packet)]() mutable {
        self->packets_.push_back(std::move(packet));
        self->Pass();
      });
    };
    if (!way_.has_value()) return arrive();
    way_->uplink.Send(bytes, std::move(arrive));
  }
  static int64_t BytesOf(const Packet& packet) { return static_cast<int64_t>(packet.bytes.size()) + kPacketBytes; }
  // Sends the packets that have arrived through the port, one after the other.
  void Pass() {
    while (!packets_.empty() && !waiting_for_rto_) {
      auto packet = std::make_shared<Packet>(std::move(packets_.front()));
      packets_.pop_front();
      if (packet->last) {
        end_ = packet->end;
      } else if (!way_.has_value()) {
        Deliver(packet->bytes);
      } else {
        ++in_port_;
        // The port is first in, first out, and no packet of this stream overtakes a lost one.
        SimulatedPort::Packet sent{.bytes = BytesOf(*packet), .slow = way_->uplink.slow()};
        if (way_->charged_until != nullptr) {
          sent.charged_until = [self = shared_from_this(), packet] {
            return self->way_->charged_until(packet->streams);
          };
        }
        if (way_->port.Send(std::move(sent), [self = shared_from_this(), packet] {
              --self->in_port_;
              self->Deliver(packet->bytes);
              self->EndIfDone();
            })) {
          continue;
        }
        --in_port_;
        packets_.push_front(std::move(*packet));
        waiting_for_rto_ = true;
        events_.After(kRto, [self = shared_from_this()] {
          self->waiting_for_rto_ = false;
          self->way_->port.Repeat();
          self->Pass();
        });
      }
    }
    EndIfDone();
  }
  void Deliver(absl::string_view bytes) {
    if (on_bytes_ != nullptr) on_bytes_(bytes);
  }
  void EndIfDone() {
    if (!end_.has_value() || in_port_ > 0 || !packets_.empty() || on_end_ == nullptr) return;
    const auto on_end = std::move(on_end_);
    Cut();
    on_end(*end_);
  }

  EventQueue& events_;
  const std::optional<Way> way_;
  const TimePoint::duration delay_;
  std::function<void(absl::string_view)> on_bytes_;
  std::function<void(absl::Status)> on_end_;
  FrameReader frames_;
  // Packets that have reached the port, and wait for the repetition of a lost one.
  std::deque<Packet> packets_;
  std::optional<absl::Status> end_;
  int in_port_ = 0;
  bool waiting_for_rto_ = false;
};

}  // namespace sluice::testing
