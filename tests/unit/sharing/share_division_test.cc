#include "lib/sharing/share_division.h"

#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/random_seed.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kLots = 1'000'000;

TEST(DivideByWeightTest, NobodyGetsNothing) {
  EXPECT_THAT(DivideByWeight(1000, {}), IsEmpty());
}

TEST(DivideByWeightTest, InProportionToWeights) {
  EXPECT_THAT(DivideByWeight(4000, {{.weight = 3, .cap_bytes = kLots}, {.weight = 1, .cap_bytes = kLots}}),
              ElementsAre(3000, 1000));
}

TEST(DivideByWeightTest, WhatOneDoesNotWantGoesToTheOthersByWeight) {
  EXPECT_THAT(DivideByWeight(4000, {{.weight = 1, .cap_bytes = 1000},
                                    {.weight = 1, .cap_bytes = kLots},
                                    {.weight = 2, .cap_bytes = kLots}}),
              ElementsAre(1000, 1000, 2000));
  EXPECT_THAT(DivideByWeight(4000, {{.weight = 9, .cap_bytes = 100}, {.weight = 1, .cap_bytes = kLots}}),
              ElementsAre(100, 3900));
}

TEST(DivideByWeightTest, NoMoreThanIsWanted) {
  EXPECT_THAT(DivideByWeight(4000, {{.weight = 1, .cap_bytes = 100}, {.weight = 5, .cap_bytes = 200}}),
              ElementsAre(100, 200));
}

TEST(DivideByWeightTest, AFloorIsTakenFromTheOthers) {
  EXPECT_THAT(
      DivideByWeight(4000, {{.weight = 3, .cap_bytes = kLots}, {.weight = 1, .floor_bytes = 2500, .cap_bytes = kLots}}),
      ElementsAre(1500, 2500));
}

TEST(DivideByWeightTest, KeepsFloorsCapsAndTheSum) {
  const uint64_t seed = TakeRandomSeed().value;
  SCOPED_TRACE("replay with SLUICE_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto between = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int round = 0; round < 2000; ++round) {
    const int64_t bytes = between(1, 1 << 20);
    std::vector<ShareClaim> claims(between(1, 8));
    int64_t left = bytes;
    int64_t wanted = 0;
    for (ShareClaim& claim : claims) {
      claim.weight = static_cast<double>(between(1, 100'000)) / 1000;
      claim.floor_bytes = between(0, left);
      left -= claim.floor_bytes;
      claim.cap_bytes = claim.floor_bytes + between(0, bytes);
      wanted += claim.cap_bytes;
    }
    const std::vector<int64_t> shares = DivideByWeight(bytes, claims);
    ASSERT_EQ(shares.size(), claims.size());
    int64_t sum = 0;
    for (size_t i = 0; i < shares.size(); ++i) {
      ASSERT_GE(shares[i], claims[i].floor_bytes);
      ASSERT_LE(shares[i], claims[i].cap_bytes);
      sum += shares[i];
    }
    ASSERT_LE(sum, bytes);
    ASSERT_GE(sum, std::min(bytes, wanted) - static_cast<int64_t>(claims.size()));
  }
}

}  // namespace
}  // namespace sluice
