#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <random>
#include <utility>
#include <vector>

#include "sluice/plan.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lib/scheduling/link_schedule.h"
#include "tests/unit/scheduling/port_model.h"

namespace sluice {
namespace {

using std::chrono::nanoseconds;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

constexpr int64_t kSruBytes = 10'240;
constexpr nanoseconds kPortByteTime{80};   // 100 Mbps
constexpr nanoseconds kAccessByteTime{8};  // 1 Gbps
constexpr nanoseconds kRto = std::chrono::milliseconds(200);
constexpr int64_t kHeaderBytes = 150;  // of a ready response, frame included

// The port of the project's test network: 100 Mbit/s, 32 KB.
LinkProfile TestPort() {
  LinkProfile profile;
  profile.capacity_bytes_per_second = 12.5e6;
  profile.buffer_bytes = 32 * 1024;
  profile.propagation_rtt = absl::Microseconds(200);
  return profile;
}

struct Outcome {
  int64_t drops = 0;       // packets
  double goodput_bps = 0;  // of the calls that are not stragglers
};

// The behaviour of workers. A worker thinks for `think` before it responds, a straggler for `tail_time`.
struct Work {
  nanoseconds think{0};
  int straggler_percent = 0;
  nanoseconds tail_time{0};
  // True: responses have 200 B to 200 KB, and the schedule does not receive their sizes. False: each is an SRU.
  bool mixed_sizes = false;
};

// One block read from `workers`, packet by packet. A worker sends its granted bytes at the rate of its own link, as
// soon as the request or the grant arrives. A packet that the port drops arrives again after a retransmission timeout.
class FanOut {
 public:
  FanOut(SchedulePolicy policy, int64_t workers, Work work = {}, uint64_t seed = 1)
      : work_(work), schedule_({.profile = TestPort(), .policy = policy, .budget_bytes = {}}), answers_(workers) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> decades(std::log10(200), std::log10(200'000));
    for (Answer& answer : answers_) {
      if (work.mixed_sizes) answer.bytes = static_cast<int64_t>(std::pow(10, decades(random)));
      answer.missing_bytes = answer.bytes;
    }
    for (Answer& answer : answers_) answer.straggles = static_cast<int>(random() % 100) < work.straggler_percent;
  }

  Outcome Read() {
    std::vector<CallRequest> calls(answers_.size(), {.response_bytes = kSruBytes});
    for (size_t i = 0; i < calls.size(); ++i) calls[i].tag = i;
    std::vector<Action> actions;
    EXPECT_TRUE(schedule_.Submit(now_, calls, TimePoint::max(), actions).ok());
    Apply(actions);
    while (schedule_.State().blocks > 0) {
      actions.clear();
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
    double bytes = 0;
    for (const Answer& answer : answers_) bytes += answer.straggles ? 0 : static_cast<double>(answer.bytes);
    const double seconds = std::chrono::duration<double>(last_ordinary_ - TimePoint()).count();
    return {.drops = drops_, .goodput_bps = 8.0 * bytes / seconds};
  }

 private:
  struct Packet {
    TimePoint at;
    size_t answer;
    int64_t bytes;   // of the response; 0: headers of a ready response
    bool delivered;  // true: at the aggregator; false: at the port
    bool operator>(const Packet& other) const { return at > other.at; }
  };
  struct Answer {
    CallId call;
    int64_t bytes = kSruBytes;
    int64_t sent_bytes = 0;
    int64_t granted_bytes = 0;
    int64_t missing_bytes = 0;
    bool known = false;  // the schedule has received its size
    bool straggles = false;
  };

  void Apply(const std::vector<Action>& actions) {
    for (const Action& action : actions) {
      Answer& answer = answers_[action.tag];
      answer.call = action.call;
      answer.granted_bytes = std::min(answer.granted_bytes + action.bytes, answer.bytes);
      const TimePoint asked = now_ + absl::ToChronoNanoseconds(TestPort().propagation_rtt);
      const TimePoint ready = asked + (answer.straggles ? work_.tail_time : work_.think);
      if (action.kind == Action::Kind::kSend && schedule_.options().policy == SchedulePolicy::kGrants) {
        packets_.push({.at = ready, .answer = action.tag, .bytes = 0, .delivered = false});
      }
      SendAnswer(action.tag, action.kind == Action::Kind::kSend ? ready : asked);
    }
  }

  void SendAnswer(size_t tag, TimePoint at) {
    Answer& answer = answers_[tag];
    for (; answer.sent_bytes < answer.granted_bytes; at += kAccessByteTime * TestPort().frame_bytes) {
      const int64_t open_bytes = answer.granted_bytes - answer.sent_bytes;
      const int64_t bytes = std::min(open_bytes, TestPort().packet_payload_bytes);
      answer.sent_bytes += bytes;
      packets_.push({.at = at, .answer = tag, .bytes = bytes, .delivered = false});
    }
  }

  void Take(Packet packet, std::vector<Action>& actions) {
    Answer& answer = answers_.at(packet.answer);
    if (packet.delivered) {
      // The prefix arrives with the headers or the first packet.
      if (!std::exchange(answer.known, true)) schedule_.OnReady(now_, answer.call, answer.missing_bytes, actions);
      schedule_.OnReceived(now_, answer.call, packet.bytes, actions);
      answer.missing_bytes -= packet.bytes;
      if (packet.bytes == 0 || answer.missing_bytes > 0) return;
      if (!answer.straggles) last_ordinary_ = now_;
      schedule_.OnFinished(now_, answer.call, CallEnd::kArrived, actions);
    } else {
      const int64_t wire_bytes = packet.bytes == 0 ? kHeaderBytes : WireBytes(TestPort(), packet.bytes);
      const std::optional<TimePoint> left = port_.Burst(now_, wire_bytes);
      drops_ += left.has_value() ? 0 : 1;
      packet.at = left.value_or(now_ + kRto);
      packet.delivered = left.has_value();
      packets_.push(packet);
    }
  }

  const Work work_;
  LinkSchedule schedule_;
  PortModel port_{TestPort().buffer_bytes, kPortByteTime};
  TimePoint now_;
  TimePoint last_ordinary_;
  int64_t drops_ = 0;
  std::vector<Answer> answers_;  // by tag
  std::priority_queue<Packet, std::vector<Packet>, std::greater<>> packets_;
};

TEST(FanOutTest, RollingFillsTheLinkAndDropsNothing) {
  for (const int64_t workers : {64, 256, 1000}) {
    const Outcome outcome = FanOut(SchedulePolicy::kRolling, workers).Read();
    EXPECT_EQ(outcome.drops, 0) << workers;
    EXPECT_GT(outcome.goodput_bps, 94e6) << workers;
    EXPECT_LT(outcome.goodput_bps, 100e6 * kSruBytes / WireBytes(TestPort(), kSruBytes)) << workers;
  }
}

TEST(FanOutTest, BatchesDropNothingAndKeepTheTimeOfTheirPlan) {
  for (const int64_t workers : {64, 256, 1000}) {
    const Outcome outcome = FanOut(SchedulePolicy::kBatches, workers).Read();
    EXPECT_EQ(outcome.drops, 0) << workers;
    const double planned = PlanSlots(TestPort(), kSruBytes, workers)->goodput_bps;
    EXPECT_NEAR(outcome.goodput_bps, planned, 0.1 * planned) << workers;
  }
}

TEST(FanOutTest, UnscheduledOverflowsThePort) {
  EXPECT_EQ(FanOut(SchedulePolicy::kUnscheduled, 3).Read().drops, 0);
  const Outcome outcome = FanOut(SchedulePolicy::kUnscheduled, 64).Read();
  EXPECT_GT(outcome.drops, 64 * 8 / 2);
  EXPECT_LT(outcome.goodput_bps, 30e6);
}

TEST(FanOutTest, GrantsFillTheLinkAndDropNothing) {
  for (const int64_t workers : {64, 256, 1000}) {
    const Outcome outcome = FanOut(SchedulePolicy::kGrants, workers).Read();
    EXPECT_EQ(outcome.drops, 0) << workers;
    EXPECT_GT(outcome.goodput_bps, 93e6) << workers;
  }
}

TEST(FanOutTest, GrantsHideTheTimeThatWorkersThink) {
  const Work work{.think = 10ms};
  for (const int64_t workers : {64, 256, 512}) {
    const Outcome outcome = FanOut(SchedulePolicy::kGrants, workers, work).Read();
    EXPECT_EQ(outcome.drops, 0) << workers;
    const double transfer_seconds = 8.0 * static_cast<double>(kSruBytes * workers) / 93e6;
    EXPECT_GT(outcome.goodput_bps, 93e6 * transfer_seconds / (transfer_seconds + 0.010)) << workers;
    EXPECT_LT(FanOut(SchedulePolicy::kRolling, workers, work).Read().goodput_bps, 25e6) << workers;
  }
}

TEST(FanOutTest, GrantsFillTheLinkWithSizesThatNobodyKnewBefore) {
  for (const int64_t workers : {64, 256, 512}) {
    const Outcome outcome = FanOut(SchedulePolicy::kGrants, workers, {.think = 2ms, .mixed_sizes = true}).Read();
    EXPECT_EQ(outcome.drops, 0) << workers;
    EXPECT_GT(outcome.goodput_bps, 88e6) << workers;
  }
}

// Tests how much a long tail costs calls that are not in it. The window follows the time to ready of all responses, and
// so does the limit for stragglers, which leave the window.
TEST(FanOutTest, StragglersDoNotSlowDownTheOthers) {
  for (const int64_t workers : {64, 128, 256, 512}) {
    for (const bool mixed_sizes : {false, true}) {
      for (uint64_t seed = 1; seed <= 5; ++seed) {
        Work work{.think = 2ms, .mixed_sizes = mixed_sizes};
        const double without = FanOut(SchedulePolicy::kGrants, workers, work, seed).Read().goodput_bps;
        work.straggler_percent = 5;
        for (const nanoseconds tail : {nanoseconds(200ms), nanoseconds(2s)}) {
          work.tail_time = tail;
          const Outcome outcome = FanOut(SchedulePolicy::kGrants, workers, work, seed).Read();
          EXPECT_EQ(outcome.drops, 0) << workers << " workers, seed " << seed;
          EXPECT_GT(outcome.goodput_bps, 0.9 * without) << workers << " workers, seed " << seed;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice
