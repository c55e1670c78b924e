#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "lib/model/collapse.h"
#include "tests/random_seed.h"
#include "tests/unit/model/profiles.h"

namespace sluice {
namespace {

constexpr double kPi = 3.14159265358979323846;

// Computes eq. 9 directly: the integral over windows above 0 of the normal density times p^x, by Simpson's rule.
double IntegrateFullLoss(double loss, double window, double deviation) {
  constexpr int kSteps = 20'000;
  // The product is again a normal density, around `peak`. If the peak is below 0, the rest above 0 falls at least as
  // fast as p^x.
  const double peak = window + deviation * deviation * std::log(loss);
  const double start = std::max(0.0, peak - 12 * deviation);
  const double end = peak > 0 ? peak + 12 * deviation : std::min(12 * deviation, 60 / -std::log(loss));
  const auto f = [&](double x) {
    const double t = (x - window) / deviation;
    return std::exp(-0.5 * t * t + x * std::log(loss)) / (std::sqrt(2 * kPi) * deviation);
  };
  const double h = (end - start) / kSteps;
  double sum = f(start) + f(end);
  for (int i = 1; i < kSteps; ++i) sum += (i % 2 == 1 ? 4 : 2) * f(start + i * h);
  return sum * h / 3;
}

TEST(FullLossTest, IsTheIntegralOfEquation9) {
  for (const double loss : {1e-9, 0.001, 0.05, 0.3, 0.5, 0.9, 0.999, 1.0}) {
    for (const double window : {1.0, 2.5, 10.0, 40.0}) {
      for (const double deviation : {0.3, 1.0, 3.0, 12.0}) {
        const double integral = IntegrateFullLoss(loss, window, deviation);
        EXPECT_NEAR(FullLossProbability(loss, window, deviation), integral, 1e-7 * integral)
            << loss << " " << window << " " << deviation;
      }
    }
  }
}

TEST(FullLossTest, WithoutDeviationIsThePowerOfTheLoss) {
  EXPECT_DOUBLE_EQ(FullLossProbability(0.5, 4, 0), 1.0 / 16);
  EXPECT_DOUBLE_EQ(FullLossBound(0.5, 4, 0), 1.0 / 16);
  EXPECT_NEAR(FullLossProbability(0.5, 4, 1e-6), 1.0 / 16, 1e-9);
  EXPECT_EQ(FullLossProbability(0, 4, 2), 0);
  EXPECT_EQ(FullLossBound(0, 4, 2), 0);
  EXPECT_EQ(FullLossProbability(1, 4, 0), 1);
}

// The two forms of (13), and the two forms of exp(z²)·erfc(z), must agree where the code switches between them.
TEST(FullLossTest, IsContinuousWhereTheFormulaChanges) {
  const double window = 10;
  const double deviation = 4;
  for (const double z : {0.0, 25.0}) {
    const double log_loss = (-z * std::sqrt(2.0) * deviation - window) / (deviation * deviation);
    const double below = FullLossProbability(std::exp(log_loss * (1 - 1e-12)), window, deviation);
    const double above = FullLossProbability(std::exp(log_loss * (1 + 1e-12)), window, deviation);
    EXPECT_NEAR(below / above, 1, 1e-9) << z;
  }
}

// Draws windows and losses. A failure's message contains the seed, and SLUICE_SEED replays it.
TEST(FullLossTest, IsTheShareOfWindowsThatAreDrawnAndLost) {
  const uint64_t seed = TakeRandomSeed().value;
  std::mt19937_64 random(seed);
  constexpr int kDraws = 400'000;
  for (const double loss : {0.2, 0.6, 0.95}) {
    for (const double deviation : {1.0, 3.0}) {
      const double window = 4;
      std::normal_distribution<double> windows(window, deviation);
      double sum = 0;
      double squares = 0;
      for (int i = 0; i < kDraws; ++i) {
        const double x = windows(random);
        const double lost = x > 0 ? std::pow(loss, x) : 0;
        sum += lost;
        squares += lost * lost;
      }
      const double mean = sum / kDraws;
      const double error = std::sqrt((squares / kDraws - mean * mean) / kDraws);
      EXPECT_NEAR(FullLossProbability(loss, window, deviation), mean, 6 * error) << "SLUICE_SEED=" << seed;
    }
  }
}

TEST(FullLossTest, LiesBetweenTheBoundsOf14And15) {
  for (const double deviation : {0.5, 1.0, 2.0, 5.0}) {
    for (const double window : {1.0, 3.0, 10.0}) {
      for (double log_loss = -20; log_loss < 0; log_loss += 0.01) {
        const double loss = std::exp(log_loss);
        const double exact = FullLossProbability(loss, window, deviation);
        const double bound = FullLossBound(loss, window, deviation);
        ASSERT_LE(exact, bound * (1 + 1e-12)) << loss;
        if (log_loss >= -window / (deviation * deviation) && bound < 1) {
          ASSERT_GE(exact, bound / 2 * (1 - 1e-12)) << loss;
        }
      }
    }
  }
}

// A limit of eq. 16: with hardly any loss, its bound is that every window is lost.
TEST(FullLossTest, BoundSaysNothingWhereLossIsRare) {
  EXPECT_EQ(FullLossBound(1e-9, 4, 2), 1);
  EXPECT_LT(FullLossProbability(1e-9, 4, 2), 0.01);
}

TEST(FullLossTest, GrowsWithTheLossAndStaysAProbability) {
  for (const double deviation : {0.0, 1.0, 1e3, 1e9}) {
    for (const double window : {1.0, 1e3, 1e9}) {
      double before = 0;
      for (const double loss : {1e-300, 1e-30, 1e-3, 0.5, 0.99, 1 - 1e-9, 1 - 1e-15, 1.0}) {
        const double now = FullLossProbability(loss, window, deviation);
        ASSERT_GE(now, before * (1 - 1e-12)) << loss << " " << window << " " << deviation;
        ASSERT_LE(now, 1) << loss << " " << window << " " << deviation;
        before = now;
      }
    }
  }
}

// A window times out if a packet is lost and fewer than three packets arrive after the first loss: either all packets
// are lost, or there are too few duplicate ACKs. Checks all 2^w ways to lose packets.
TEST(LackOfAcksTest, IsTheSumOverAllWaysToLosePackets) {
  for (const double loss : {0.01, 0.3, 0.5, 0.8, 0.999}) {
    for (int window = 1; window <= 14; ++window) {
      for (const int duplicate_acks : {1, 3}) {
        double lack = 0;
        double full = 0;
        for (uint32_t lost = 1; lost < (uint32_t{1} << window); ++lost) {
          const int losses = std::popcount(lost);
          const double probability = std::pow(loss, losses) * std::pow(1 - loss, window - losses);
          const int after_first = window - 1 - std::countr_zero(lost);
          const int arrived_after = after_first - (losses - 1);
          if (losses == window) {
            full += probability;
          } else if (arrived_after < duplicate_acks) {
            lack += probability;
          }
        }
        EXPECT_NEAR(LackOfAcksProbability(loss, window, duplicate_acks), lack, 1e-12) << loss << " " << window;
        EXPECT_NEAR(FullLossProbability(loss, window, 0), full, 1e-12) << loss << " " << window;
      }
    }
  }
}

TEST(LackOfAcksTest, LargeWindowsTakeNoTimeAndStayAProbability) {
  for (const double loss : {0.0, 1e-12, 1e-3, 0.4999999, 0.5, 0.5000001, 0.999, 1.0}) {
    const double lack = LackOfAcksProbability(loss, int64_t{1} << 32);
    EXPECT_GE(lack, 0) << loss;
    EXPECT_LE(lack, 1) << loss;
  }
  EXPECT_NEAR(LackOfAcksProbability(1e-12, int64_t{1} << 32), 3e-12, 2e-14);  // one of the last three packets is lost
}

TEST(ProbabilityOfAnyTest, IsTheProductOfEquation17) {
  EXPECT_DOUBLE_EQ(ProbabilityOfAny(0.1, 3), 1 - 0.9 * 0.9 * 0.9);
  EXPECT_DOUBLE_EQ(ProbabilityOfAny(1, 3), 1);
  EXPECT_EQ(ProbabilityOfAny(0, 1e18), 0);
  EXPECT_EQ(ProbabilityOfAny(0.5, 0), 0);
  EXPECT_NEAR(ProbabilityOfAny(1e-18, 1e6), 1e-12, 1e-18);  // 1 - (1 - 1e-18) would be 0
}

// Plays the setting of (18) and (17) packet by packet: N flows of w packets, of which the port accepts B + C·D and
// drops the rest at random. Such drops are not independent, so slightly fewer windows than p^w of them are lost.
TEST(FullLossTest, IsNearAPortThatDropsAtRandom) {
  const uint64_t seed = TakeRandomSeed().value;
  std::mt19937_64 random(seed);
  const LinkProfile profile = PersistentProfile();  // 42.8 packets of buffer and pipe together
  constexpr int kWorkers = 16;
  constexpr int kWindow = 4;
  constexpr int kRounds = 200'000;
  std::vector<int> packets(kWorkers * kWindow);
  std::iota(packets.begin(), packets.end(), 0);
  const int dropped = kWorkers * kWindow - 43;
  int64_t full = 0;
  int64_t rounds_with_one = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<int> lost(kWorkers, 0);
    for (int i = 0; i < dropped; ++i) {
      std::swap(packets[i], packets[std::uniform_int_distribution<size_t>(i, packets.size() - 1)(random)]);
      ++lost[packets[i] / kWindow];
    }
    const auto all_lost = std::ranges::count(lost, kWindow);
    full += all_lost;
    rounds_with_one += all_lost > 0 ? 1 : 0;
  }
  double drawn_without_replacement = 1;
  for (int i = 0; i < kWindow; ++i) {
    drawn_without_replacement *= static_cast<double>(dropped - i) / (kWorkers * kWindow - i);
  }
  const double share = static_cast<double>(full) / (static_cast<double>(kRounds) * kWorkers);
  EXPECT_NEAR(share, drawn_without_replacement, 0.05 * drawn_without_replacement) << "SLUICE_SEED=" << seed;
  const double model = FullLossProbability(LossProbability(profile, kWorkers, kWindow), kWindow, 0);
  EXPECT_LT(share, model);
  EXPECT_GT(share, 0.7 * model);
  const double any = static_cast<double>(rounds_with_one) / kRounds;
  // A lost window leaves room for the others. Therefore two lost windows in a round are rarer than by chance, and one
  // is more frequent.
  EXPECT_NEAR(any, ProbabilityOfAny(share, kWorkers), 0.06 * any) << "SLUICE_SEED=" << seed;
}

}  // namespace
}  // namespace sluice
