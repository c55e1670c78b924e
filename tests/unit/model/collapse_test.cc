#include "lib/model/collapse.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "sluice/plan.h"

#include "tests/unit/model/profiles.h"

namespace sluice {
namespace {

// The link of the test network: 100 Mbps, 32 KiB, MTU 1500.
LinkProfile TestNetwork() {
  LinkProfile profile;
  profile.capacity_bytes_per_second = 12.5e6;
  return profile;
}

TEST(CollapseTest, NoLossWhileAllWindowsFitBufferAndPipe) {
  const LinkProfile profile = PersistentProfile();  // a buffer of 30.8 packets, a pipe of 12.0, and windows of 10
  const CollapseEstimate estimate = PredictCollapse(profile, 10'000, 4);
  EXPECT_EQ(estimate.loss_probability, 0);
  EXPECT_EQ(estimate.timeout_probability, 0);
  EXPECT_DOUBLE_EQ(estimate.goodput_bps, 8 * 125e6 * 10'000 / 10'400);
  EXPECT_GT(PredictCollapse(profile, 10'000, 5).loss_probability, 0);
}

TEST(CollapseTest, IsTheSourcesEquations) {
  const double loss = (100 * 4 - 32'000.0 / 1040 - 12'500.0 / 1040) / (100 * 4);
  const double sigma = std::sqrt(2.0);
  const double bound = std::exp(4 * std::log(loss) + 0.5 * 2 * std::log(loss) * std::log(loss));
  const double in_a_round = 0.5 * bound * (1 + std::erf((4 + 2 * std::log(loss)) / (std::sqrt(2.0) * sigma)));
  const double timeout = 1 - std::pow(1 - in_a_round, 3);  // 10 packets, 4 per round
  const double of_any = 1 - std::pow(1 - in_a_round, 300);
  const double sending = 100 * 10'400 / 125e6;

  const CollapseEstimate estimate =
      PredictCollapse(PersistentProfile(), 10'000, 100,
                      {.rto_min = absl::Milliseconds(10), .window_packets = 4, .window_deviation = sigma});
  EXPECT_EQ(estimate.window_packets, 4);
  EXPECT_EQ(estimate.rounds, 3);
  EXPECT_NEAR(estimate.loss_probability, loss, 1e-12);
  EXPECT_NEAR(estimate.full_loss_probability, in_a_round, 1e-12);
  EXPECT_NEAR(estimate.full_loss_bound, bound, 1e-12);
  EXPECT_NEAR(estimate.timeout_probability, timeout, 1e-12);
  EXPECT_NEAR(estimate.block_timeout_probability, of_any, 1e-12);
  EXPECT_NEAR(estimate.goodput_bps, 8.0 * 100 * 10'000 / (sending + of_any * 0.01), 1);
  EXPECT_NEAR(estimate.printed_goodput_bps, 8.0 * 100 * 10'000 / (sending + timeout * 0.01), 1);
}

// Eq. 23 gives the same goodput as the link's capacity minus the loss by waiting.
TEST(CollapseTest, Equation23IsEquation5) {
  for (const int64_t workers : {8, 16, 64, 256}) {
    const CollapseEstimate estimate = PredictCollapse(TestNetwork(), 10'240, workers);
    const double capacity = 12.5e6 * 10'240 / static_cast<double>(WireBytes(TestNetwork(), 10'240));  // of payload
    const double payload = static_cast<double>(workers) * 10'240;
    const double idle = estimate.block_timeout_probability * 0.2;
    const double goodput = capacity - capacity * capacity * idle / (payload + capacity * idle);
    EXPECT_NEAR(estimate.goodput_bps, 8 * goodput, 1e-6 * estimate.goodput_bps) << workers;
  }
}

// Proposition 1: with everything else unchanged, N grows linearly with B, by 1 / ((1 − p)·w) for each packet. The line
// starts at the number for the pipe alone, so N is proportional to B only if B >> C·D.
TEST(CollapseTest, Proposition1WorkersAreLinearInTheBuffer) {
  LinkProfile profile = PersistentProfile();
  profile.buffer_bytes = 0;
  constexpr double kWindow = 3;
  const double pipe = 12'500.0 / 1040;
  for (const double loss : {0.01, 0.1, 0.5}) {
    for (int64_t buffer = 64; buffer <= 65'536; buffer *= 2) {
      profile.buffer_packets = buffer;
      int64_t workers = 1;
      while (LossProbability(profile, workers, kWindow) < loss) ++workers;
      const double linear = (static_cast<double>(buffer) + pipe) / ((1 - loss) * kWindow);
      EXPECT_GE(static_cast<double>(workers), linear * (1 - 1e-12)) << buffer;
      EXPECT_LT(static_cast<double>(workers), linear + 1) << buffer;
    }
  }
}

TEST(CollapseTest, Proposition1DoublingTheBufferDoublesTheWorkersBeforeTheCollapse) {
  const auto first_collapse = [](int64_t buffer_bytes) {
    LinkProfile profile = PersistentProfile();
    profile.buffer_bytes = buffer_bytes;
    int64_t workers = 1;
    while (PredictCollapse(profile, 64'000, workers, {.window_packets = 8}).block_timeout_probability < 0.5) ++workers;
    return static_cast<double>(workers);
  };
  for (const int64_t buffer_bytes : {128'000, 256'000, 512'000, 1'024'000}) {
    // The ratio is a little less than 2, because the pipe does not grow, and because with more workers it is likelier
    // that one of them loses its window.
    const double ratio = first_collapse(2 * buffer_bytes) / first_collapse(buffer_bytes);
    EXPECT_GT(ratio, 1.7) << buffer_bytes;
    EXPECT_LT(ratio, 2) << buffer_bytes;
  }
}

LinkProfile WithoutPipe() {
  LinkProfile profile = PersistentProfile();
  profile.buffer_bytes = 0;
  profile.buffer_packets = 64;
  profile.propagation_rtt = absl::Nanoseconds(1);  // B >> C·D, as in proposition 2
  return profile;
}

// The derivatives of ln P_FLT with respect to ln w and ln σ_w, if p follows from w by (18).
struct Sensitivity {
  double to_window = 0;
  double to_deviation = 0;
};

Sensitivity SensitivityAt(int64_t workers, double window, double deviation) {
  constexpr double kStep = 1e-4;
  const auto log_full_loss = [&](double w, double sigma) {
    return std::log(FullLossProbability(LossProbability(WithoutPipe(), workers, w), w, sigma));
  };
  const double here = log_full_loss(window, deviation);
  return {.to_window = (log_full_loss(window * (1 + kStep), deviation) - here) / kStep,
          .to_deviation = (log_full_loss(window, deviation * (1 + kStep)) - here) / kStep};
}

// Proposition 2, first and last stage: σ_w matters more with fewer workers, and with very many workers the windows do
// not matter.
TEST(CollapseTest, Proposition2DeviationMattersWithFewWorkersAndNothingWithMany) {
  double to_deviation = std::numeric_limits<double>::infinity();
  for (const int64_t workers : {11, 12, 14, 18, 30, 100, 1000}) {
    const Sensitivity now = SensitivityAt(workers, 6, 1.5);
    EXPECT_LT(now.to_deviation, to_deviation) << workers;
    to_deviation = now.to_deviation;
  }
  EXPECT_GT(SensitivityAt(12, 6, 1.5).to_deviation, 1);
  const Sensitivity many = SensitivityAt(1'000'000, 6, 1.5);
  EXPECT_LT(std::abs(many.to_window), 1e-3);  // the rest is the normal distribution's share below 0
  EXPECT_LT(std::abs(many.to_deviation), 1e-3);
}

// The second stage: the negative component exceeds the positive one by a factor of 2w / (σ_w²·|ln p|). It does not
// follow that a change of w has a larger effect than a change of σ_w. With u = B/(N·w), the effects are (w/2 − σ_w²)·u²
// and σ_w²·u².
TEST(CollapseTest, Proposition2NegativeComponentOutweighsThePositiveOne) {
  const double window = 9;
  const double deviation = 1.2;
  double ratio = 0;
  for (const int64_t workers : {8, 12, 20, 50, 500}) {
    const double log_loss = std::log(LossProbability(WithoutPipe(), workers, window));
    const double now = -window * log_loss / (0.5 * deviation * deviation * log_loss * log_loss);
    EXPECT_GT(now, ratio) << workers;
    ratio = now;
  }
  const double u = 64.0 / (400 * window);
  const Sensitivity sensitivity = SensitivityAt(400, window, deviation);
  EXPECT_NEAR(sensitivity.to_window, (window / 2 - deviation * deviation) * u * u, 0.1 * sensitivity.to_window);
  EXPECT_NEAR(sensitivity.to_deviation, deviation * deviation * u * u, 0.1 * sensitivity.to_deviation);
}

// If the positive component is larger, the bound (16) is 1 and gives no information about that stage.
TEST(CollapseTest, Proposition2PositiveComponentDominatesWhereTheBoundIsVoid) {
  for (const double window : {2.0, 6.0, 20.0}) {
    for (const double deviation : {1.0, 3.0}) {
      const double even = std::exp(-2 * window / (deviation * deviation));
      EXPECT_NEAR(FullLossBound(even, window, deviation), 1, 1e-12);
      EXPECT_EQ(FullLossBound(even / 2, window, deviation), 1);
      EXPECT_LT(FullLossProbability(even / 2, window, deviation), 0.2);
    }
  }
}

TEST(CollapseTest, Proposition2LargestFullLossIsThatOfTheBufferAlone) {
  const LinkProfile profile = WithoutPipe();
  for (const int64_t workers : {16, 64, 256}) {
    const double largest = std::exp(-64.0 / static_cast<double>(workers));
    double before = 0;
    for (double window = 64.0 / static_cast<double>(workers) + 1; window < 1e7; window *= 2) {
      const double now = FullLossProbability(LossProbability(profile, workers, window), window, 0);
      EXPECT_GE(now, before) << workers << " " << window;
      EXPECT_LE(now, largest) << workers << " " << window;
      before = now;
    }
    EXPECT_NEAR(before, largest, 1e-4 * largest);
  }
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

TEST(UnscheduledTest, IsTheClosedLoopWhileAllResponsesFitTheBuffer) {
  const LinkProfile profile = PersistentProfile();  // 32,000 bytes hold three responses of 10,400
  for (const int64_t workers : {1, 2, 3}) {
    const auto goodput_bps = PredictUnscheduledGoodputBps(profile, 10'000, workers);
    ASSERT_TRUE(goodput_bps) << workers;
    EXPECT_DOUBLE_EQ(*goodput_bps, PredictClosedLoopGoodputBps(profile, 10'000, workers));
  }
}

// ns-2 has 31 Mbit/s for two workers with 64 KB each and a buffer of 64 KB. The model of collapse has 956.
TEST(UnscheduledTest, IsUnknownIfTheyDoNot) {
  EXPECT_FALSE(PredictUnscheduledGoodputBps(PersistentProfile(), 10'000, 4));
  LinkProfile profile;
  profile.buffer_bytes = 65'536;
  EXPECT_GT(PredictCollapse(profile, 65'536, 2).goodput_bps, 20 * 31e6);
  EXPECT_FALSE(PredictUnscheduledGoodputBps(profile, 65'536, 2));
}

TEST(UnscheduledTest, FreshConnectionsWaitForTheirWindows) {
  // 10 packets in windows of 1, 2, 4 and 3, after a handshake. ns-2 has 144.6 Mbit/s without the handshake.
  const auto goodput_bps = PredictUnscheduledGoodputBps(PaperProfile(), 10'000, 1);
  ASSERT_TRUE(goodput_bps);
  EXPECT_NEAR(*goodput_bps, 144.6e6, 0.1 * 144.6e6);
}

TEST(UnscheduledTest, LargestSizesDoNotOverflow) {
  LinkProfile profile;
  profile.packet_payload_bytes = 1;
  profile.frame_bytes = int64_t{1} << 17;
  EXPECT_FALSE(PredictUnscheduledGoodputBps(profile, kMaxResponseBytes, kMaxWorkers));
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

TEST(CollapseTest, LargestSizesAndOptionsStillGiveProbabilities) {
  for (const double deviation : {0.0, 1.0, 4294967296.0}) {
    for (const double window : {0.0, 1e-9, 1.0, 4294967296.0}) {
      const CollapseOptions options{.rto_min = absl::Hours(1),
                                    .window_packets = window,
                                    .window_deviation = deviation,
                                    .rounds = int64_t{1} << 32};
      ASSERT_TRUE(options.Validate().ok());
      const CollapseEstimate estimate = PredictCollapse(TestNetwork(), kMaxResponseBytes, kMaxWorkers, options);
      for (const double probability :
           {estimate.loss_probability, estimate.full_loss_probability, estimate.full_loss_bound,
            estimate.lack_of_acks_probability, estimate.timeout_probability, estimate.block_timeout_probability}) {
        EXPECT_GE(probability, 0) << window << " " << deviation;
        EXPECT_LE(probability, 1) << window << " " << deviation;
      }
      EXPECT_GT(estimate.goodput_bps, 0) << window << " " << deviation;
    }
  }
}

TEST(CollapseOptionsTest, FieldValueAndBoundAreNamed) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(CollapseOptions().Validate().ok());
  EXPECT_EQ(CollapseOptions{.rto_min = absl::Nanoseconds(-1)}.Validate().message(),
            "rto_min is -1ns, it must be from 0 to 1h");
  EXPECT_EQ(CollapseOptions{.rto_min = absl::InfiniteDuration()}.Validate().message(),
            "rto_min is inf, it must be from 0 to 1h");
  EXPECT_EQ(CollapseOptions{.window_packets = -1}.Validate().message(),
            "window_packets is -1, it must be from 0 to 4294967296");
  EXPECT_EQ(CollapseOptions{.window_packets = kNan}.Validate().message(),
            "window_packets is nan, it must be from 0 to 4294967296");
  EXPECT_EQ(CollapseOptions{.window_deviation = kInfinity}.Validate().message(),
            "window_deviation is inf, it must be from 0 to 4294967296");
  EXPECT_EQ(CollapseOptions{.rounds = -7}.Validate().message(), "rounds is -7, it must be from 0 to 4294967296");
}

}  // namespace
}  // namespace sluice
