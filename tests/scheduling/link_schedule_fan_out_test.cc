#include <algorithm>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "sluice/link_schedule.h"
#include "sluice/plan.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/scheduling/port_model.h"

namespace sluice {
namespace {

using std::chrono::nanoseconds;

constexpr int64_t kSruBytes = 10'240;
constexpr nanoseconds kPortByteTime{80};   // 100 Mbps
constexpr nanoseconds kAccessByteTime{8};  // 1 Gbps
constexpr nanoseconds kRto = std::chrono::milliseconds(200);

// The port of the project's test network: 100 Mbps, 32 KB.
LinkProfile TestPort() {
  LinkProfile profile;
  profile.capacity_bytes_per_second = 12.5e6;
  profile.buffer_bytes = 32 * 1024;
  profile.propagation_rtt = absl::Microseconds(200);
  return profile;
}

struct Outcome {
  int64_t drops = 0;  // packets
  double goodput_bps = 0;
};

// One block read from `workers`, packet by packet: a worker sends its whole answer at the rate of its own link as the
// request arrives, and what the port drops comes again after a retransmission timeout.
class FanOut {
 public:
  FanOut(Discipline discipline, int64_t workers) : workers_(workers), schedule_(Make(discipline)) {}

  Outcome Read() {
    const std::vector<CallRequest> calls(workers_, {.response_bytes = kSruBytes});
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
    const double seconds = std::chrono::duration<double>(now_ - TimePoint()).count();
    return {.drops = drops_, .goodput_bps = 8.0 * static_cast<double>(kSruBytes * workers_) / seconds};
  }

 private:
  struct Packet {
    TimePoint at;
    size_t answer;
    bool delivered;  // at the aggregator; else at the port
    bool operator>(const Packet& other) const { return at > other.at; }
  };
  struct Answer {
    CallId call;
    int64_t packets_missing = 0;
  };

  static LinkSchedule Make(Discipline discipline) {
    return *LinkSchedule::Create({.profile = TestPort(), .discipline = discipline, .budget_bytes = {}});
  }

  void Apply(const std::vector<Action>& actions) {
    const LinkProfile profile = TestPort();
    for (const Action& action : actions) {
      const int64_t packets = Packets(profile, kSruBytes);
      answers_.push_back({.call = action.call, .packets_missing = packets});
      const TimePoint first = now_ + absl::ToChronoNanoseconds(profile.propagation_rtt);
      for (int64_t i = 0; i < packets; ++i) {
        packets_.push({first + kAccessByteTime * i * profile.frame_bytes, answers_.size() - 1, false});
      }
    }
  }

  void Take(const Packet& packet, std::vector<Action>& actions) {
    Answer& answer = answers_.at(packet.answer);
    if (packet.delivered) {
      if (--answer.packets_missing == 0) schedule_.OnFinished(now_, answer.call, CallEnd::kArrived, actions);
      return;
    }
    const std::optional<TimePoint> left =
        port_.Burst(now_, WireBytes(TestPort(), kSruBytes) / Packets(TestPort(), kSruBytes));
    drops_ += left.has_value() ? 0 : 1;
    packets_.push({left.value_or(now_ + kRto), packet.answer, left.has_value()});
  }

  const int64_t workers_;
  LinkSchedule schedule_;
  PortModel port_{TestPort().buffer_bytes, kPortByteTime};
  TimePoint now_;
  int64_t drops_ = 0;
  std::vector<Answer> answers_;
  std::priority_queue<Packet, std::vector<Packet>, std::greater<>> packets_;
};

TEST(FanOutTest, RollingFillsTheLinkAndDropsNothing) {
  for (const int64_t workers : {64, 256, 1000}) {
    const Outcome outcome = FanOut(Discipline::kRolling, workers).Read();
    EXPECT_EQ(outcome.drops, 0) << workers;
    EXPECT_GT(outcome.goodput_bps, 94e6) << workers;
    EXPECT_LT(outcome.goodput_bps, 100e6 * kSruBytes / WireBytes(TestPort(), kSruBytes)) << workers;
  }
}

TEST(FanOutTest, BatchesDropNothingAndKeepTheTimeOfTheirPlan) {
  for (const int64_t workers : {64, 256, 1000}) {
    const Outcome outcome = FanOut(Discipline::kBatches, workers).Read();
    EXPECT_EQ(outcome.drops, 0) << workers;
    const double planned = PlanSlots(TestPort(), kSruBytes, workers)->goodput_bps;
    EXPECT_NEAR(outcome.goodput_bps, planned, 0.1 * planned) << workers;
  }
}

TEST(FanOutTest, UnscheduledOverflowsThePort) {
  EXPECT_EQ(FanOut(Discipline::kUnscheduled, 3).Read().drops, 0);
  const Outcome outcome = FanOut(Discipline::kUnscheduled, 64).Read();
  EXPECT_GT(outcome.drops, 64 * 8 / 2);
  EXPECT_LT(outcome.goodput_bps, 30e6);
}

}  // namespace
}  // namespace sluice
