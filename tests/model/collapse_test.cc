#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "sluice/plan.h"

#include "tests/model/profiles.h"

namespace sluice {
namespace {

// 100 Mbps, 32 KiB, MTU 1500: the link of the test network.
LinkProfile TestNetwork() {
  LinkProfile profile;
  profile.capacity_bytes_per_second = 12.5e6;
  return profile;
}

TEST(CollapseTest, NoLossWhileAllWindowsFitBufferAndPipe) {
  const LinkProfile profile = PersistentProfile();  // 30.8 packets of buffer, 12.0 of pipe, windows of 10
  const CollapseEstimate estimate = PredictCollapse(profile, 10'000, 4);
  EXPECT_EQ(estimate.loss_probability, 0);
  EXPECT_EQ(estimate.timeout_probability, 0);
  EXPECT_DOUBLE_EQ(estimate.goodput_bps, 8 * 125e6 * 10'000 / 10'400);
  EXPECT_GT(PredictCollapse(profile, 10'000, 5).loss_probability, 0);
}

TEST(CollapseTest, IsTheSourcesEquations) {
  const double loss = (100 * 4 - 32'000.0 / 1040 - 12'500.0 / 1040) / (100 * 4);
  const double in_a_round = std::exp(4 * std::log(loss) + 0.5 * 2 * std::log(loss) * std::log(loss));
  const double timeout = 1 - std::pow(1 - in_a_round, 3);  // 10 packets, 4 a round
  const double seconds = 100 * 10'400 / 125e6 + timeout * 0.01;

  const CollapseEstimate estimate = PredictCollapse(
      PersistentProfile(), 10'000, 100, {.rto_min = absl::Milliseconds(10), .window_packets = 4, .window_variance = 2});
  EXPECT_NEAR(estimate.loss_probability, loss, 1e-12);
  EXPECT_NEAR(estimate.timeout_probability, timeout, 1e-12);
  EXPECT_NEAR(estimate.goodput_bps, 8.0 * 100 * 10'000 / seconds, 1);
}

TEST(CollapseTest, TellsThatTheTestNetworkCollapses) {
  const double link_bps = 8 * 12.5e6;
  const CollapseEstimate estimate = PredictCollapse(TestNetwork(), 10'240, 64);
  EXPECT_GT(estimate.timeout_probability, 0.5);
  EXPECT_LT(estimate.goodput_bps, 0.5 * link_bps);
  EXPECT_GT(PredictCollapse(TestNetwork(), 10'240, 2).goodput_bps, 0.9 * link_bps);
}

TEST(CollapseTest, ShorterMinimumRtoHurtsLess) {
  const CollapseEstimate slow = PredictCollapse(TestNetwork(), 10'240, 64);
  const CollapseEstimate fast = PredictCollapse(TestNetwork(), 10'240, 64, {.rto_min = absl::Milliseconds(1)});
  EXPECT_EQ(slow.timeout_probability, fast.timeout_probability);
  EXPECT_LT(slow.goodput_bps, fast.goodput_bps);
}

TEST(CollapseTest, LossAndTimeoutsGrowWithTheWorkers) {
  CollapseEstimate before;
  for (int64_t workers = 1; workers <= 1000; ++workers) {
    const CollapseEstimate estimate = PredictCollapse(TestNetwork(), 10'240, workers);
    ASSERT_GE(estimate.loss_probability, before.loss_probability);
    ASSERT_GE(estimate.timeout_probability, before.timeout_probability);
    ASSERT_LE(estimate.timeout_probability, 1);
    before = estimate;
  }
}

TEST(CollapseTest, GrowingWindowsOfFreshConnectionsAreSeen) {
  EXPECT_EQ(PredictCollapse(PaperProfile(), 10'000, 16, {.window_packets = 1}).timeout_probability, 0);
  const CollapseEstimate worst = PredictCollapse(PaperProfile(), 10'000, 16);
  const CollapseEstimate at_four = PredictCollapse(PaperProfile(), 10'000, 16, {.window_packets = 4});
  EXPECT_GT(worst.timeout_probability, 0.01);
  EXPECT_EQ(worst.timeout_probability, at_four.timeout_probability);
}

TEST(CollapseTest, WindowIsNeverMoreThanTheSru) {
  const CollapseEstimate whole = PredictCollapse(TestNetwork(), 2896, 64, {.window_packets = 2});
  const CollapseEstimate large = PredictCollapse(TestNetwork(), 2896, 64, {.window_packets = 1e30});
  EXPECT_EQ(PredictCollapse(TestNetwork(), 2896, 64).timeout_probability, whole.timeout_probability);
  EXPECT_EQ(large.timeout_probability, whole.timeout_probability);
}

TEST(CollapseTest, SenselessOptionsStillGiveProbabilities) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double value : {kNan, kInfinity, -kInfinity, -1.0, 1e300}) {
    const CollapseEstimate estimate =
        PredictCollapse(TestNetwork(), 10'240, 1000,
                        {.rto_min = absl::InfiniteDuration(), .window_packets = value, .window_variance = value});
    EXPECT_GE(estimate.timeout_probability, 0) << value;
    EXPECT_LE(estimate.timeout_probability, 1) << value;
    EXPECT_GE(estimate.goodput_bps, 0) << value;
  }
}

}  // namespace
}  // namespace sluice
