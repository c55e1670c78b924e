#include "lib/proxy/fair_shares.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace sluice {
namespace {

using Kind = FairShares::Verdict::Kind;

// Asks, and does what the verdict says. Returns whether the group has got it.
bool Take(FairShares& shares, size_t group, int64_t more = 1) {
  while (true) {
    const FairShares::Verdict verdict = shares.Ask(group, more);
    if (verdict.kind == Kind::kGivesWay) {
      shares.Count(verdict.from, -1);
      continue;
    }
    if (verdict.kind == Kind::kYes) shares.Count(group, more);
    return verdict.kind == Kind::kYes;
  }
}

TEST(FairSharesTest, AGroupAloneMayHaveAll) {
  FairShares shares;
  shares.SetLimit(10);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(Take(shares, 0));
  EXPECT_EQ(shares.Ask(0).kind, Kind::kShare);
  EXPECT_EQ(shares.ShareOf(0), 10);
  EXPECT_EQ(shares.ShareOf(1), 5);
}

TEST(FairSharesTest, TheOneWithTheMostGivesWayUpToTheShareOfTheOther) {
  FairShares shares;
  shares.SetLimit(10);
  shares.Count(0, 10);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Take(shares, 1)) << i;
  EXPECT_EQ(shares.used(0), 5);
  EXPECT_EQ(shares.Ask(1).kind, Kind::kShare) << "neither has more than the other";
  EXPECT_EQ(shares.Ask(0).kind, Kind::kShare);
}

TEST(FairSharesTest, SharesAreByWeight) {
  FairShares shares;
  shares.SetLimit(40);
  shares.SetGroup(1, 3, FairShares::kNoCap);
  shares.Count(0, 40);
  while (Take(shares, 1)) {
  }
  EXPECT_EQ(shares.used(0), 10);
  EXPECT_EQ(shares.used(1), 30);
  EXPECT_EQ(shares.ShareOf(1), 30);
}

TEST(FairSharesTest, ACapHoldsWhileThereIsRoom) {
  FairShares shares;
  shares.SetLimit(10);
  shares.SetGroup(0, 1, 3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Take(shares, 0));
  EXPECT_EQ(shares.Ask(0).kind, Kind::kCap);
  EXPECT_FALSE(shares.above_cap(0));
  shares.SetGroup(0, 1, 2);
  EXPECT_TRUE(shares.above_cap(0));
}

// The same with a definition of fairness that looks at all groups: a group is refused only if it would then have more
// than each other group has for its weight, and gives way only above its fair share.
TEST(FairSharesTest, NobodyBelowItsFairShareIsRefusedOrGivesWay) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto one_of = [&random](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  constexpr size_t kGroups = 5;
  for (int world = 0; world < 300; ++world) {
    FairShares shares;
    const int64_t limit = one_of(1, 60);
    shares.SetLimit(limit);
    std::array<double, kGroups> weights;
    std::array<int64_t, kGroups> caps;
    std::array<int64_t, kGroups> used = {};
    for (size_t i = 0; i < kGroups; ++i) {
      weights[i] = static_cast<double>(one_of(1, 4));
      caps[i] = one_of(0, 3) == 0 ? one_of(1, 20) : FairShares::kNoCap;
      shares.SetGroup(i, weights[i], caps[i]);
    }
    for (int step = 0; step < 400; ++step) {
      const auto group = static_cast<size_t>(one_of(0, kGroups - 1));
      if (used[group] > 0 && one_of(0, 3) == 0) {
        shares.Count(group, -1);
        --used[group];
        continue;
      }
      int64_t all = 0;
      double active = 0;
      for (size_t i = 0; i < kGroups; ++i) {
        all += used[i];
        if (used[i] > 0 || i == group) active += weights[i];
      }
      const auto fair = [&](size_t i) { return static_cast<double>(limit) * weights[i] / active; };
      const FairShares::Verdict verdict = shares.Ask(group);
      switch (verdict.kind) {
        case Kind::kYes:
          ASSERT_LT(all, limit);
          ASSERT_LT(used[group], caps[group]);
          break;
        case Kind::kCap:
          ASSERT_EQ(used[group], caps[group]);
          continue;
        case Kind::kShare:
          ASSERT_EQ(all, limit) << "work conserving";
          ASSERT_GT(static_cast<double>(used[group] + 1), fair(group) - 1e-9);
          continue;
        case Kind::kGivesWay:
          ASSERT_EQ(all, limit);
          ASSERT_NE(verdict.from, group);
          ASSERT_GE(static_cast<double>(used[verdict.from]), fair(verdict.from) - 1e-9);
          shares.Count(verdict.from, -1);
          --used[verdict.from];
          break;
      }
      shares.Count(group, 1);
      ++used[group];
      ASSERT_EQ(shares.used(group), used[group]);
      ASSERT_LE(shares.used(), limit);
    }
    // While all groups ask, each of them has its fair share in the end, or its cap.
    for (int step = 0; step < 400; ++step) Take(shares, static_cast<size_t>(one_of(0, kGroups - 1)));
    for (size_t i = 0; i < kGroups; ++i) {
      ASSERT_GE(shares.used(i), std::min(shares.ShareOf(i), caps[i])) << "group " << i;
    }
  }
}

}  // namespace
}  // namespace sluice
