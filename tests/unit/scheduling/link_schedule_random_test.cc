#include <string>

#include "gtest/gtest.h"
#include "tests/random_seed.h"
#include "tests/unit/scheduling/random_life.h"

namespace sluice {
namespace {

#ifndef SLUICE_SEEDS
#define SLUICE_SEEDS 1500
#endif
constexpr int kSeeds = SLUICE_SEEDS;

TEST(LinkScheduleRandomTest, KeepsItsInvariantsAndNeverOverflowsThePort) {
  auto [seed, replays] = TakeRandomSeed();
  ASSERT_FALSE(HasFailure());
  const int seeds = replays ? 1 : kSeeds;
  RecordProperty("first_seed", std::to_string(seed));
  for (const uint64_t last = seed + seeds; seed < last; ++seed) {
    ASSERT_EQ(testing::RandomLife(seed).Run(), "") << "replay with SLUICE_SEED=" << seed;
  }
}

TEST(LinkScheduleRandomTest, KeepsItsInvariantsWhereASeedOnceBrokeThem) {
  // A slot comes while a handshake waits for room, so no timer is due for the slot.
  EXPECT_EQ(testing::RandomLife(4077301207).Run(), "");
  // The worker of the only rest becomes full and has room again within one event. Bytes that overtook the rest still
  // count.
  EXPECT_EQ(testing::RandomLife(2305948060).Run(), "");
  EXPECT_EQ(testing::RandomLife(2705563500).Run(), "");
}

}  // namespace
}  // namespace sluice
