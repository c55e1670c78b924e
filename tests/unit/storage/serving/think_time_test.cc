#include "lib/storage/serving/think_time.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr absl::Duration kUsual = absl::Milliseconds(2);
constexpr absl::Duration kTail = absl::Milliseconds(200);

std::vector<absl::Duration> Draw(ThinkTime& think_time, uint32_t worker, int count) {
  std::vector<absl::Duration> times;
  for (int i = 0; i < count; ++i) times.push_back(think_time.Next(worker));
  return times;
}

TEST(ThinkTimeTest, AShareIsFromZeroToOne) {
  EXPECT_TRUE(ThinkTime::Validate({.usual = kUsual}).ok());
  EXPECT_TRUE(ThinkTime::Validate({.usual = kUsual, .tail = kTail, .tail_share = 1}).ok());
  for (const double share : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    const absl::Status status = ThinkTime::Validate({.tail = kTail, .tail_share = share});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << share;
    EXPECT_THAT(status.message(), HasSubstr("must be 0 to 1"));
  }
}

TEST(ThinkTimeTest, ATailHasAShareAndATime) {
  EXPECT_THAT(ThinkTime::Validate({.tail = kTail}).message(), HasSubstr("think_tail.share is 0"));
  EXPECT_THAT(ThinkTime::Validate({.tail_share = 0.5}).message(), HasSubstr("think_tail.time 0"));
}

TEST(ThinkTimeTest, EveryAnswerTakesTheUsualTimeWithoutATail) {
  ThinkTime think_time({.usual = kUsual});
  EXPECT_THAT(Draw(think_time, 7, 100), Each(kUsual));
}

TEST(ThinkTimeTest, TheTailHasItsShare) {
  ThinkTime think_time({.usual = kUsual, .tail = kTail, .tail_share = 0.05});
  constexpr int kWorkers = 100;
  constexpr int kDraws = 1000;
  int slow = 0;
  for (uint32_t worker = 0; worker < kWorkers; ++worker) {
    for (const absl::Duration time : Draw(think_time, worker, kDraws)) slow += time == kTail ? 1 : 0;
  }
  const double share = static_cast<double>(slow) / (kWorkers * kDraws);
  EXPECT_NEAR(share, 0.05, 5 * std::sqrt(0.05 * 0.95 / (kWorkers * kDraws)));
}

TEST(ThinkTimeTest, FirstAnswersOfNeighboursDiffer) {
  ThinkTime think_time({.usual = kUsual, .tail = kTail, .tail_share = 0.5});
  int slow = 0;
  for (uint32_t worker = 0; worker < 1000; ++worker) slow += think_time.Next(worker) == kTail ? 1 : 0;
  EXPECT_NEAR(slow, 500, 5 * std::sqrt(1000 * 0.25));
}

TEST(ThinkTimeTest, AWorkerDrawsTheSameInEveryRun) {
  const ThinkTime::Options options{.usual = kUsual, .tail = kTail, .tail_share = 0.5};
  ThinkTime alone(options);
  ThinkTime beside(options);
  std::vector<absl::Duration> mixed;
  for (int i = 0; i < 100; ++i) {
    beside.Next(4);
    mixed.push_back(beside.Next(3));
  }
  EXPECT_EQ(Draw(alone, 3, 100), mixed);
}

}  // namespace
}  // namespace sluice
