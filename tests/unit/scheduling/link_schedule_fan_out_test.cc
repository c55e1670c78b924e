#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "sluice/plan.h"

#include "gtest/gtest.h"
#include "tests/unit/scheduling/port_simulation.h"

namespace sluice::testing {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

constexpr int64_t kSruBytes = 10'240;

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

// One block that is read from `workers` through a PortSimulation.
class FanOut {
 public:
  FanOut(SchedulePolicy policy, int64_t workers, Work work = {}, uint64_t seed = 1)
      : simulation_({.profile = TestPort(), .policy = policy, .budget_bytes = {}}),
        responses_(static_cast<size_t>(workers), {.bytes = kSruBytes, .expected_bytes = kSruBytes}),
        straggles_(responses_.size()) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> decades(std::log10(200), std::log10(200'000));
    for (PortSimulation::Response& response : responses_) {
      if (work.mixed_sizes) response.bytes = static_cast<int64_t>(std::pow(10, decades(random)));
    }
    for (size_t i = 0; i < responses_.size(); ++i) {
      straggles_[i] = static_cast<int>(random() % 100) < work.straggler_percent;
      responses_[i].think = straggles_[i] ? work.tail_time : work.think;
    }
  }

  Outcome Read() {
    simulation_.Await(simulation_.Submit(TimePoint(), responses_));
    double bytes = 0;
    TimePoint last_ordinary;
    for (size_t i = 0; i < responses_.size(); ++i) {
      if (straggles_[i]) continue;
      bytes += static_cast<double>(responses_[i].bytes);
      last_ordinary = std::max(last_ordinary, simulation_.ended_at(i));
    }
    const double seconds = std::chrono::duration<double>(last_ordinary - TimePoint()).count();
    return {.drops = simulation_.drops(), .goodput_bps = 8.0 * bytes / seconds};
  }

 private:
  PortSimulation simulation_;
  std::vector<PortSimulation::Response> responses_;
  std::vector<bool> straggles_;
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
}  // namespace sluice::testing
