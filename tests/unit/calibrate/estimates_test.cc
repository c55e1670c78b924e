#include "tools/sluice_calibrate/estimates.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<double> OneTo(int count) {
  std::vector<double> values(static_cast<size_t>(count));
  std::iota(values.rbegin(), values.rend(), 1.0);
  return values;
}

TEST(EstimateQuantileTest, IsTheNearestRankAndTheRanksTwoDeviationsAway) {
  const Estimate median = EstimateQuantile(OneTo(100), 0.5);  // the standard deviation of the rank is 5
  EXPECT_EQ(median.value, 50);
  EXPECT_EQ(median.low, 40);
  EXPECT_EQ(median.high, 60);
  EXPECT_EQ(median.samples, 100);
  const Estimate tail = EstimateQuantile(OneTo(100), 0.99);
  EXPECT_EQ(tail.value, 99);
  EXPECT_EQ(tail.high, 100) << "no sample is larger";
}

TEST(EstimateQuantileTest, OfNothingIsNotDetermined) {
  EXPECT_EQ(EstimateQuantile({}, 0.5).value, std::nullopt);
  EXPECT_EQ(EstimateQuantile({}, 0.5).note, "no samples");
  const Estimate one = EstimateQuantile({7}, 0.999);
  EXPECT_EQ(one.value, 7);
  EXPECT_EQ(one.low, 7);
  EXPECT_EQ(one.high, 7);
}

// The interval must contain the true median in 19 of 20 cases.
TEST(EstimateQuantileTest, TheIntervalHoldsTheTruthAsOftenAsItSays) {
  constexpr int kCases = 1000;
  std::mt19937 random(1);
  std::exponential_distribution<> distribution(1);
  int held = 0;
  for (int i = 0; i < kCases; ++i) {
    std::vector<double> values(200);
    for (double& value : values) value = distribution(random);
    const Estimate estimate = EstimateQuantile(values, 0.5);
    held += estimate.low <= std::log(2) && std::log(2) <= estimate.high ? 1 : 0;
  }
  EXPECT_GE(held, 0.93 * kCases);
  EXPECT_LT(held, kCases) << "an interval that is always right says nothing";
}

TEST(EstimateMinimumTest, IsTheLeastAndTheWorstOfTheQuarters) {
  const Estimate least = EstimateMinimum(std::vector<double>{5, 3, 9, 4, 7, 8, 3, 6});
  EXPECT_EQ(least.value, 3);
  EXPECT_EQ(least.low, 3);
  EXPECT_EQ(least.high, 7);
  EXPECT_EQ(EstimateMinimum(std::vector<double>{2}).high, 2);
  EXPECT_EQ(EstimateMinimum({}).value, std::nullopt);
}

LoopSample Loop(const std::vector<double>& rates, int64_t lost_packets = 0) {
  LoopSample loop = {.lost_packets = lost_packets};
  for (const double rate : rates) loop.windows.push_back({static_cast<int64_t>(rate), absl::Seconds(1)});
  return loop;
}

TEST(EstimateRateTest, SeesThroughPausesAndLoopsThatWereNotBusy) {
  const std::vector<LoopSample> loops = {Loop({500, 510, 505}), Loop({998, 1000, 1002, 1000, 999}),
                                         Loop({1000, 700, 1001, 1000, 600})};
  const Estimate rate = EstimateRate(loops);
  ASSERT_TRUE(rate.value.has_value());
  EXPECT_NEAR(*rate.value, 1000, 3);
  EXPECT_EQ(rate.samples, 10);
}

TEST(EstimateRateTest, LeavesOutLoopsWithLosses) {
  const std::vector<LoopSample> loops = {Loop({1000, 1000, 1000, 1000, 1000}), Loop({1030, 1030, 1030}, 2)};
  EXPECT_EQ(EstimateRate(loops).value, 1000);
  const Estimate lossy = EstimateRate(std::vector<LoopSample>{Loop({1000, 1000, 1000, 1000, 1000, 1000}, 1)});
  EXPECT_EQ(lossy.value, std::nullopt);
  EXPECT_THAT(lossy.note, HasSubstr("0 windows without loss; 5 are wanted"));
}

// Times of the smallest responses: the minimum is 100 us, and the median 200 us.
const std::vector<absl::Duration>& AnswerTimes() {
  static const std::vector<absl::Duration> times = {absl::Microseconds(100), absl::Microseconds(200),
                                                    absl::Microseconds(900)};
  return times;
}

TEST(OutsideQueueTest, IsWhatThePortSendsUntilTheNextAnswerLessThePacketThatItIsSending) {
  const OutsideQueue outside = EstimateOutsideQueue(25e6, 1500, AnswerTimes());
  EXPECT_NEAR(outside.low_bytes, 2500 - 1500, 1e-6);
  EXPECT_NEAR(outside.usual_bytes, 5000 - 1500, 1e-6);
  EXPECT_NEAR(outside.high_bytes, 5000, 1e-6);
}

TEST(OutsideQueueTest, IsNothingWhereThePortSendsLessThanAPacketMeanwhile) {
  const OutsideQueue outside = EstimateOutsideQueue(5e6, 1500, AnswerTimes());
  EXPECT_EQ(outside.low_bytes, 0);
  EXPECT_EQ(outside.usual_bytes, 0);
  EXPECT_NEAR(outside.high_bytes, 1000, 1e-6);
  EXPECT_EQ(EstimateOutsideQueue(5e6, 1500, {}).high_bytes, 0);
}

constexpr OutsideQueue kOutside = {.low_bytes = 1000, .usual_bytes = 2000, .high_bytes = 3000};

TEST(EstimateBufferTest, LiesHalfwayBetweenTheLastLosslessAndTheFirstLossy) {
  const std::vector<BufferTrial> trials = {{20000, 0}, {40000, 7}, {30000, 0}, {36000, 1}, {34000, 0}};
  const BufferEstimate estimate = EstimateBuffer(trials, kOutside);
  EXPECT_EQ(estimate.onset_bytes, 35000);
  EXPECT_EQ(estimate.bytes.value, 33000);
  EXPECT_EQ(estimate.bytes.samples, 5);
  EXPECT_THAT(estimate.bytes.note, IsEmpty());
}

TEST(EstimateBufferTest, TheIntervalIsThatOfOneTrialMoreThatWentWrong) {
  const std::vector<BufferTrial> trials = {{20000, 0}, {30000, 0}, {34000, 0}, {36000, 1}, {40000, 7}, {50000, 9}};
  const BufferEstimate estimate = EstimateBuffer(trials, kOutside);
  EXPECT_EQ(estimate.onset_low_bytes, 30000);
  EXPECT_EQ(estimate.onset_high_bytes, 40000);
  EXPECT_EQ(estimate.bytes.low, 27000);
  EXPECT_EQ(estimate.bytes.high, 39000);
}

TEST(EstimateBufferTest, OneStrayLossDoesNotMoveIt) {
  std::vector<BufferTrial> trials;
  for (int64_t bytes = 10000; bytes <= 60000; bytes += 1000) trials.push_back({bytes, bytes > 35500 ? 3 : 0});
  trials.push_back({21000, 1});
  trials.push_back({45000, 0});
  EXPECT_EQ(EstimateBuffer(trials, kOutside).onset_bytes, 35500);
}

TEST(EstimateBufferTest, SaysThatOtherTrafficLosesPackets) {
  std::vector<BufferTrial> trials;
  for (int i = 0; i < 20; ++i) trials.push_back({10000 + 1000 * i, i % 4 == 0 ? 1 : 0});
  for (int i = 0; i < 20; ++i) trials.push_back({40000 + 1000 * i, 5});
  const BufferEstimate estimate = EstimateBuffer(trials, kOutside);
  EXPECT_TRUE(estimate.bytes.value.has_value());
  EXPECT_THAT(estimate.bytes.note, HasSubstr("other traffic"));
}

TEST(EstimateBufferTest, WithoutLossItIsLargerThanWhatWasTried) {
  const Estimate estimate = EstimateBuffer(std::vector<BufferTrial>{{20000, 0}, {103400, 0}}, kOutside).bytes;
  EXPECT_EQ(estimate.value, std::nullopt);
  EXPECT_THAT(estimate.note, HasSubstr("larger than 98 KiB"));
  // A loss without later losses is a stray one.
  const Estimate stray = EstimateBuffer(std::vector<BufferTrial>{{20000, 0}, {30000, 1}, {103400, 0}}, kOutside).bytes;
  EXPECT_EQ(stray.value, std::nullopt);
}

TEST(EstimateBufferTest, WithLossEverywhereItIsNotDetermined) {
  const Estimate estimate = EstimateBuffer(std::vector<BufferTrial>{{8192, 3}, {16384, 1}}, kOutside).bytes;
  EXPECT_EQ(estimate.value, std::nullopt);
  EXPECT_THAT(estimate.note, HasSubstr("as little as 8 KiB"));
}

TEST(EstimateBufferTest, WithoutTrialsThePortWasNotBusy) {
  EXPECT_THAT(EstimateBuffer({}, kOutside).bytes.note, HasSubstr("no run kept the port busy"));
}

// Losses begin over a range, as on a noisy host: below 33000 they are rare, above 37000 nearly certain.
TEST(EstimateBufferTest, IsCloseInNoise) {
  const auto seed = static_cast<uint32_t>(::testing::UnitTest::GetInstance()->random_seed());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::uniform_real_distribution<> uniform;
  constexpr int kCases = 500;
  int close = 0;
  for (int i = 0; i < kCases; ++i) {
    std::vector<BufferTrial> trials;
    for (int trial = 0; trial < 40; ++trial) {
      const double bytes = 20000 + 30000 * uniform(random);
      const double lossy = std::clamp((bytes - 33000) / 4000, 0.02, 0.98);
      trials.push_back({static_cast<int64_t>(bytes), uniform(random) < lossy ? 1 : 0});
    }
    const BufferEstimate estimate = EstimateBuffer(trials, OutsideQueue());
    close += estimate.bytes.value.has_value() && std::abs(*estimate.bytes.value - 35000) < 0.1 * 35000 ? 1 : 0;
  }
  EXPECT_GE(close, 0.97 * kCases);
}

}  // namespace
}  // namespace sluice
