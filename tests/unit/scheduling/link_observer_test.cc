#include "lib/scheduling/link_observer.h"

#include <chrono>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/scheduling/grants_options.h"
#include "tests/unit/scheduling/port_simulation.h"
#include "tests/unit/scheduling/schedule_driver.h"

namespace sluice::testing {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

constexpr int64_t kSruBytes = 10'240;
constexpr int kBlocks = 10;

struct Work {
  int64_t workers = 64;
  nanoseconds think{0};
  int straggler_percent = 0;
  nanoseconds tail{0};
  int64_t bytes = kSruBytes;
};

struct Outcome {
  int64_t drops = 0;  // packets
  double seconds = 0;
  LinkObservation seen;
};

// Blocks one after the other.
Outcome Read(SchedulePolicy policy, const Work& work) {
  PortSimulation simulation({.profile = TestPort(), .policy = policy, .budget_bytes = {}});
  std::mt19937_64 random(1);
  TimePoint at = TimePoint() + 1ms;
  for (int block = 0; block < kBlocks; ++block) {
    std::vector<PortSimulation::Response> responses;
    for (int64_t i = 0; i < work.workers; ++i) {
      const bool straggles = static_cast<int>(random() % 100) < work.straggler_percent;
      responses.push_back({.bytes = work.bytes,
                           .expected_bytes = work.bytes,
                           .think = straggles ? work.tail : work.think,
                           .worker = static_cast<uint32_t>(i + 1)});
    }
    at += simulation.Await(simulation.Submit(at, responses));
  }
  return {.drops = simulation.drops(),
          .seconds = std::chrono::duration<double>(at - (TimePoint() + 1ms)).count(),
          .seen = simulation.schedule().Observation()};
}

double Seconds(nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

// The time of a run without a schedule, less the time that it lost, is the time of the same run with one.
void ExpectPrediction(const Work& work, double most_error) {
  const Outcome observed = Read(SchedulePolicy::kUnscheduled, work);
  const Outcome scheduled = Read(SchedulePolicy::kGrants, work);
  EXPECT_GT(observed.drops, 0);
  EXPECT_EQ(observed.seen.responses, work.workers * kBlocks);
  EXPECT_EQ(observed.seen.response_bytes, work.workers * kBlocks * work.bytes);
  EXPECT_NEAR(Seconds(observed.seen.busy_time), observed.seconds, 0.001);
  const double predicted = observed.seconds - Seconds(observed.seen.lost_time);
  EXPECT_NEAR(predicted / scheduled.seconds, 1, most_error)
      << "unscheduled " << observed.seconds << " s, predicted " << predicted << " s, scheduled " << scheduled.seconds
      << " s";
  EXPECT_GT(observed.seen.held_responses, 0);
  EXPECT_GT(observed.seen.lost_responses, 0);
}

TEST(LinkObserverTest, PredictsWhatTheScheduleThenDoes) {
  for (const int64_t workers : {16, 64, 256}) ExpectPrediction({.workers = workers}, 0.15);
  ExpectPrediction({.think = 5ms}, 0.15);
  ExpectPrediction({.workers = 16, .bytes = 100'000}, 0.15);
}

TEST(LinkObserverTest, StragglersAreNotLost) {
  // They respond after the collapse of the others.
  ExpectPrediction({.straggler_percent = 1, .tail = 6000ms}, 0.15);
}

TEST(LinkObserverTest, NothingIsLostThatFits) {
  for (const nanoseconds tail : {nanoseconds(0), nanoseconds(300ms)}) {
    const Outcome seen = Read(SchedulePolicy::kUnscheduled, {.workers = 2, .straggler_percent = 20, .tail = tail});
    EXPECT_EQ(seen.drops, 0);
    EXPECT_EQ(seen.seen.held_responses, 0);
    EXPECT_EQ(seen.seen.lost_time, 0ms);
  }
}

TEST(LinkObserverTest, ASchedulePredictsNothing) {
  EXPECT_EQ(Read(SchedulePolicy::kGrants, {}).seen.responses, 0);
}

// Responses of 10 KB that begin together, and come one after the other as fast as the link carries them.
class ObservedFanOut {
 public:
  explicit ObservedFanOut(size_t responses) : responses_(responses) {}

  // The first packet of the first response comes at once, and the others after all other responses and a silence.
  void Read(nanoseconds silence = nanoseconds(0)) {
    for (ObservedResponse& response : responses_) {
      in_flight_bytes_ += kCostBytes;
      observer_.OnBegin(now_, response, 1, kCostBytes, in_flight_bytes_);
    }
    for (ObservedResponse& response : responses_) {
      now_ += 1ms;
      observer_.OnReady(now_, response, 0, in_flight_bytes_);
      observer_.OnReceived(now_, response, kPacketBytes, in_flight_bytes_);
      if (&response != &responses_.front()) End(response);
    }
    now_ += silence;
    End(responses_.front());
    now_ += 1s;
  }

  const LinkObservation& seen() const { return observer_.observation(); }

 private:
  static constexpr int64_t kCostBytes = 10'850;
  static constexpr int64_t kPacketBytes = 1448;

  void End(ObservedResponse& response) {
    in_flight_bytes_ -= kCostBytes;
    observer_.OnReceived(now_, response, kSruBytes - kPacketBytes, in_flight_bytes_);
    observer_.OnEnd(now_, response, in_flight_bytes_);
  }

  TimePoint now_ = TimePoint() + 1s;
  int64_t in_flight_bytes_ = 0;
  LinkObserver observer_{TestPort()};
  std::vector<ObservedResponse> responses_;
};

TEST(LinkObserverTest, AWaitForARepairedLossIsLostTime) {
  ObservedFanOut fan_out(10);
  for (int i = 0; i < 10; ++i) fan_out.Read();
  EXPECT_EQ(fan_out.seen().lost_time, 0ms);
  fan_out.Read(45ms);
  EXPECT_NEAR(Seconds(fan_out.seen().lost_time), 0.045, 0.003);
  EXPECT_EQ(fan_out.seen().lost_responses, 0);  // without a timeout
}

TEST(LinkObserverTest, APauseIsNotLostTimeIfTheBufferWasNotExceeded) {
  ObservedFanOut fan_out(2);
  for (int i = 0; i < 10; ++i) fan_out.Read(45ms);
  EXPECT_EQ(fan_out.seen().lost_time, 0ms);
}

TEST(LinkObserverTest, TheQueueOfThePortIsNoReasonForMoreRoom) {
  ObservedFanOut fan_out(16);
  for (int i = 0; i < 10; ++i) fan_out.Read();
  EXPECT_GE(fan_out.seen().held_responses, 110);
}

// The application has no room for a message when its length prefix comes, and makes room while it comes.
TEST(LinkObserverTest, AMessageThatWaitsForRoomCountsOnce) {
  ScheduleDriver link(OptionsWith(SchedulePolicy::kUnscheduled));
  link.Submit(At(0ms), {8000});
  link.Ready(At(1ms), 0, 0, 8000);
  link.Receive(At(2ms), 0, 3000);
  link.Ready(At(3ms), 0, 5000, 0);
  link.Receive(At(4ms), 0, 5000);
  link.Finish(At(5ms), 0);
  EXPECT_EQ(link.schedule().Observation().responses, 1);
  EXPECT_EQ(link.schedule().Observation().response_bytes, 8000);
  EXPECT_EQ(link.schedule().Observation().busy_time, 4ms);
}

}  // namespace
}  // namespace sluice::testing
