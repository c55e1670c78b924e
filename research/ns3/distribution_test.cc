#include "research/ns3/distribution.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/random_seed.h"

namespace sluice {
namespace {

using testing::Dice;
using testing::Distribution;

double MeanOfDraws(const Distribution& distribution, uint64_t seed) {
  Dice dice(seed);
  constexpr int kDraws = 4'000'000;  // most bytes of homa-w3 are in few of its messages
  double sum = 0;
  for (int i = 0; i < kDraws; ++i) sum += distribution.Draw(dice);
  return sum / kDraws;
}

TEST(DistributionTest, DrawsHaveTheMeanThatItSays) {
  const RandomSeed seed = TakeRandomSeed();
  for (const char* text :
       {"fixed:32kb", "uniform:1kb-9kb", "log:2kb-1mb", "exp:10kb", "web-search", "cache-follower", "homa-w3"}) {
    const auto sizes = Distribution::ParseSizes(text);
    ASSERT_TRUE(sizes.ok()) << sizes.status();
    EXPECT_NEAR(MeanOfDraws(*sizes, seed.value) / sizes->mean(), 1, 0.05) << text << ", SLUICE_SEED=" << seed.value;
  }
}

TEST(DistributionTest, SomeMeansAreKnown) {
  EXPECT_EQ(Distribution::ParseSizes("fixed:32kb")->mean(), 32768);
  EXPECT_EQ(Distribution::ParseSizes("uniform:1000-9000")->mean(), 5000);
  EXPECT_NEAR(Distribution::ParseSizes("log:1000-100000")->mean(), 99'000 / std::log(100), 1e-6);
  EXPECT_NEAR(Distribution::ParseSizes("web-search")->mean(), 1.7e6, 0.1e6);
  EXPECT_NEAR(Distribution::ParseTimes("tail:2ms,0.05,200ms")->mean(), 0.95 * 0.002 + 0.05 * 0.2, 1e-9);
}

TEST(DistributionTest, ATailIsDrawnAsOftenAsItSays) {
  const RandomSeed seed = TakeRandomSeed();
  const auto think = *Distribution::ParseTimes("tail:2ms,0.05,200ms");
  Dice dice(seed.value);
  int late = 0;
  for (int i = 0; i < 10'000; ++i) {
    const double drawn = think.Draw(dice);
    EXPECT_TRUE(drawn == 0.002 || drawn == 0.2) << drawn;
    late += drawn == 0.2 ? 1 : 0;
  }
  EXPECT_NEAR(late, 500, 100) << "SLUICE_SEED=" << seed.value;
}

TEST(DistributionTest, SaysWhatItDoesNotUnderstand) {
  for (const char* text : {"", "32kb", "fixed:", "log:0-5", "uniform:9kb-1kb", "fixed:1kb-2kb", "pareto:3kb"}) {
    const auto sizes = Distribution::ParseSizes(text);
    EXPECT_FALSE(sizes.ok()) << text;
  }
  EXPECT_THAT(Distribution::ParseSizes("pareto:3kb").status().message(), ::testing::HasSubstr("\"pareto:3kb\""));
  EXPECT_FALSE(Distribution::ParseTimes("tail:2ms,1.5,200ms").ok());
}

}  // namespace
}  // namespace sluice
