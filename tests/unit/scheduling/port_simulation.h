#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <queue>
#include <random>
#include <utility>
#include <vector>

#include "sluice/plan.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lib/scheduling/link_schedule.h"
#include "tests/unit/scheduling/port_model.h"

namespace sluice::testing {

using std::chrono::nanoseconds;

// The port of the project's test network: 100 Mbit/s, 32 KB.
inline LinkProfile TestPort() {
  LinkProfile profile;
  profile.capacity_bytes_per_second = 12.5e6;
  profile.buffer_bytes = 32 * 1024;
  profile.propagation_rtt = absl::Microseconds(200);
  return profile;
}

inline double Mbps(int64_t bytes, nanoseconds time) {
  return 8e-6 * static_cast<double>(bytes) / std::chrono::duration<double>(time).count();
}

// Blocks that are read through one port, packet by packet. A worker sends its granted bytes at the rate of its own
// link, as soon as the request or the grant arrives. A packet that the port drops arrives again after a retransmission
// timeout.
class PortSimulation {
 public:
  struct Response {
    int64_t bytes = 0;
    int64_t expected_bytes = 0;  // what the schedule receives with the request
    nanoseconds think{0};        // before the worker responds
    uint32_t worker = 0;         // 0: unknown to the schedule
    nanoseconds byte_time{8};    // of the link of the worker; default: 1 Gbit/s
    int64_t error_bytes = 0;     // above 0: it is an error with details in headers of this size
    bool hangs = false;          // nothing comes
  };
  struct Block {
    TimePoint submitted_at;
    TimePoint ended_at;          // of the last response so far
    size_t missing = 0;          // responses
    int64_t received_bytes = 0;  // payload

    bool ended() const { return missing == 0; }
  };

  explicit PortSimulation(const ScheduleOptions& options, const LinkProfile& port = TestPort())
      : profile_(port), schedule_(options) {}

  // Submits a block at a time that is not before the last event. Returns its index.
  size_t Submit(TimePoint at, const std::vector<Response>& responses, size_t traffic_class = 0,
                TimePoint deadline = TimePoint::max()) {
    RunUntil(at);
    now_ = at;
    std::vector<CallRequest> calls;
    for (const Response& response : responses) {
      calls.push_back({.response_bytes = response.expected_bytes, .tag = sent_.size(), .worker = response.worker});
      sent_.push_back({.block = blocks_.size(), .response = response, .missing_bytes = response.bytes});
    }
    blocks_.push_back({.submitted_at = at, .ended_at = {}, .missing = responses.size()});
    std::vector<Action> actions;
    EXPECT_TRUE(schedule_.Submit(now_, calls, deadline, actions, nullptr, traffic_class).ok());
    Apply(actions);
    return blocks_.size() - 1;
  }

  // Runs until the block has ended, and returns its time.
  nanoseconds Await(size_t block) {
    while (!blocks_[block].ended()) Step();
    return blocks_[block].ended_at - blocks_[block].submitted_at;
  }

  // Runs all events before this time.
  void RunUntil(TimePoint at) {
    while (NextEvent() < at) Step();
  }

  // Leases the whole budget, or changes the lease, at a time that is not before the last event.
  void SetLease(TimePoint at, BudgetLease lease) {
    RunUntil(at);
    now_ = at;
    lease.bytes = lease.link_bytes = lease.plan_bytes = schedule_.State().budget_bytes;
    lease.may_exceed = true;
    std::vector<Action> actions;
    EXPECT_TRUE(schedule_.SetLease(now_, lease, actions).ok());
    Apply(actions);
  }

  const LinkSchedule& schedule() const { return schedule_; }
  const Block& block(size_t block) const { return blocks_[block]; }
  // Returns when a response has ended. Responses are numbered in the order of submission.
  TimePoint ended_at(size_t response) const { return sent_[response].ended_at; }
  TimePoint now() const { return now_; }
  int64_t drops() const { return drops_; }                        // packets
  int64_t most_ready_bytes() const { return most_ready_bytes_; }  // that waited at workers at any time

 private:
  static constexpr nanoseconds kRto = std::chrono::milliseconds(200);
  static constexpr int64_t kHeaderBytes = 150;  // of a ready response, frame included

  struct Packet {
    TimePoint at;
    size_t tag;
    int64_t bytes;   // of the response; 0: headers of a ready response
    bool delivered;  // true: at the aggregator; false: at the port
    bool repeated = false;
    bool operator>(const Packet& other) const { return at > other.at; }
  };
  struct Sent {
    size_t block = 0;
    Response response;
    CallId call;
    int64_t sent_bytes = 0;
    int64_t granted_bytes = 0;
    int64_t missing_bytes = 0;
    bool known = false;  // the schedule has received its size
    TimePoint ended_at;
  };

  TimePoint NextEvent() const {
    return packets_.empty() ? schedule_.NextTimer() : std::min(schedule_.NextTimer(), packets_.top().at);
  }

  void Step() {
    std::vector<Action> actions;
    if (packets_.empty() || schedule_.NextTimer() <= packets_.top().at) {
      now_ = schedule_.NextTimer();
      schedule_.OnTimer(now_, actions);
    } else {
      now_ = packets_.top().at;
      const Packet packet = packets_.top();
      packets_.pop();
      Take(packet, actions);
    }
    Apply(actions);
  }

  void Apply(const std::vector<Action>& actions) {
    for (const Action& action : actions) {
      Sent& sent = sent_[action.tag];
      sent.call = action.call;
      if (action.kind == Action::Kind::kExpire || action.kind == Action::Kind::kAbort) {
        std::vector<Action> more;
        schedule_.OnFinished(now_, action.call, CallEnd::kAborted, more);
        Apply(more);
        continue;
      }
      sent.granted_bytes = std::min(sent.granted_bytes + action.bytes, sent.response.bytes);
      const TimePoint asked = now_ + absl::ToChronoNanoseconds(profile_.propagation_rtt);
      const TimePoint ready = asked + sent.response.think;
      if (sent.response.hangs) continue;
      if (sent.response.error_bytes > 0) {
        for (int64_t left = sent.response.error_bytes; left > 0; left -= profile_.packet_payload_bytes) {
          packets_.push({.at = ready, .tag = action.tag, .bytes = 0, .delivered = false});
        }
        continue;
      }
      if (action.kind == Action::Kind::kSend && schedule_.options().policy == SchedulePolicy::kGrants) {
        packets_.push({.at = ready, .tag = action.tag, .bytes = 0, .delivered = false});
      }
      SendGranted(action.tag, action.kind == Action::Kind::kSend ? ready : asked);
    }
  }

  void SendGranted(size_t tag, TimePoint at) {
    Sent& sent = sent_[tag];
    for (; sent.sent_bytes < sent.granted_bytes; at += sent.response.byte_time * profile_.frame_bytes) {
      const int64_t open_bytes = sent.granted_bytes - sent.sent_bytes;
      const int64_t bytes = std::min(open_bytes, profile_.packet_payload_bytes);
      sent.sent_bytes += bytes;
      packets_.push({.at = at, .tag = tag, .bytes = bytes, .delivered = false});
    }
  }

  void Take(Packet packet, std::vector<Action>& actions) {
    Sent& sent = sent_.at(packet.tag);
    if (packet.delivered && sent.response.error_bytes > 0) {
      sent.missing_bytes =
          std::exchange(sent.response.error_bytes, sent.response.error_bytes - profile_.packet_payload_bytes) -
          profile_.packet_payload_bytes;
      schedule_.OnHeaders(sent.call, profile_.packet_payload_bytes);
      if (sent.missing_bytes <= 0) End(sent, actions);
    } else if (packet.delivered) {
      // The prefix arrives with the headers or the first packet.
      if (!std::exchange(sent.known, true)) schedule_.OnReady(now_, sent.call, sent.missing_bytes, actions);
      schedule_.OnReceived(now_, sent.call, packet.bytes, actions);
      sent.missing_bytes -= packet.bytes;
      blocks_[sent.block].received_bytes += packet.bytes;
      most_ready_bytes_ = std::max(most_ready_bytes_, schedule_.State().ready_bytes);
      if (packet.bytes > 0 && sent.missing_bytes <= 0) End(sent, actions);
    } else {
      // The acknowledgement of the request was lost with the first packet, which this side has seen in the meantime.
      if (packet.repeated && !sent.known) schedule_.OnSilence({&sent.response.worker, 1});
      const int64_t payload_bytes = sent.response.error_bytes > 0 ? profile_.packet_payload_bytes : packet.bytes;
      const int64_t wire_bytes = payload_bytes == 0 ? kHeaderBytes : WireBytes(profile_, payload_bytes);
      const std::optional<TimePoint> left = port_.Burst(now_, wire_bytes);
      drops_ += left.has_value() ? 0 : 1;
      packet.at = left.value_or(now_ + kRto);
      packet.delivered = left.has_value();
      packet.repeated = !packet.delivered;
      packets_.push(packet);
    }
  }

  void End(Sent& sent, std::vector<Action>& actions) {
    sent.ended_at = now_;
    blocks_[sent.block].ended_at = now_;
    --blocks_[sent.block].missing;
    schedule_.OnFinished(now_, sent.call, CallEnd::kArrived, actions);
  }

  const LinkProfile profile_;
  LinkSchedule schedule_;
  PortModel port_{profile_.buffer_bytes, nanoseconds(std::llround(1e9 / profile_.capacity_bytes_per_second))};
  TimePoint now_;
  int64_t drops_ = 0;
  int64_t most_ready_bytes_ = 0;
  std::deque<Sent> sent_;  // by tag
  std::vector<Block> blocks_;
  std::priority_queue<Packet, std::vector<Packet>, std::greater<>> packets_;
};

}  // namespace sluice::testing
