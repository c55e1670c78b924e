#include "lib/scheduling/pacer.h"

#include <chrono>
#include <cstdint>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""us;

// A byte takes a nanosecond, and the path holds 200 KB.
LinkProfile Path() {
  LinkProfile profile;
  profile.capacity_bytes_per_second = 1e9;
  profile.propagation_rtt = absl::Microseconds(200);
  return profile;
}

TimePoint At(std::chrono::nanoseconds time) {
  return TimePoint() + std::chrono::seconds(1) + time;
}

Pacer MakePacer(int64_t budget_bytes, int64_t link_bytes) {
  Pacer pacer;
  pacer.Set(true, Path(), {.bytes = budget_bytes, .link_bytes = link_bytes, .start_bytes = link_bytes});
  pacer.Advance(At(0us));
  return pacer;
}

TEST(PacerTest, PacesIfThePathHoldsMoreThanTwoThirdsOfTheBudget) {
  EXPECT_EQ(MakePacer(299'000, 299'000).pipe_bytes(), 200'000);
  EXPECT_FALSE(MakePacer(300'000, 300'000).paced());
  Pacer pacer;
  pacer.Set(false, Path(), {.bytes = 60'000, .link_bytes = 60'000, .start_bytes = 60'000});
  pacer.Take(1'000'000);
  EXPECT_TRUE(pacer.open());
  EXPECT_EQ(pacer.pipe_bytes(), 0);
}

TEST(PacerTest, AtMostTenBudgetsAreOnTheWayInAddition) {
  EXPECT_EQ(MakePacer(20'001, 20'001).pipe_bytes(), 200'000);
  EXPECT_EQ(MakePacer(10'000, 10'000).pipe_bytes(), 100'000);
}

TEST(PacerTest, HalfOfTheBudgetLeavesAtOnceAndTheRestAtNearlyTheRateOfTheLink) {
  Pacer pacer = MakePacer(60'000, 60'000);
  pacer.Take(20'000);
  EXPECT_TRUE(pacer.open());
  pacer.Take(20'000);
  EXPECT_FALSE(pacer.open());
  EXPECT_EQ(pacer.opens_at(), At(std::chrono::nanoseconds(10'310)));  // 40,000 - 30,000 bytes at 0.97
  pacer.Advance(At(std::chrono::nanoseconds(10'309)));
  EXPECT_FALSE(pacer.open());
  pacer.Advance(At(std::chrono::nanoseconds(10'310)));
  EXPECT_TRUE(pacer.open());
  EXPECT_EQ(pacer.opens_at(), TimePoint::max());
}

TEST(PacerTest, AnIdleLinkSavesUpNoMoreThanTheTolerance) {
  Pacer pacer = MakePacer(60'000, 60'000);
  pacer.Take(60'000);
  pacer.Advance(At(1'000'000us));
  pacer.Take(30'000);
  EXPECT_TRUE(pacer.open());
  pacer.Take(1);
  EXPECT_FALSE(pacer.open());
}

TEST(PacerTest, ABudgetThatFellAfterLossesHasLessOnTheWay) {
  Pacer pacer;
  pacer.Set(true, Path(), {.bytes = 60'000, .link_bytes = 60'000, .start_bytes = 80'000});
  EXPECT_EQ(pacer.pipe_bytes(), 100'000);
  pacer.Set(true, Path(), {.bytes = 40'000, .link_bytes = 40'000, .start_bytes = 80'000});
  EXPECT_EQ(pacer.pipe_bytes(), 0);
  pacer.Set(true, Path(), {.bytes = 90'000, .link_bytes = 90'000, .start_bytes = 80'000});
  EXPECT_EQ(pacer.pipe_bytes(), 200'000);
}

TEST(PacerTest, ALeaseHasItsPartOfTheRateAndOfThePath) {
  Pacer pacer = MakePacer(15'000, 60'000);
  EXPECT_EQ(pacer.pipe_bytes(), 50'000);
  pacer.Take(10'000);
  EXPECT_EQ(pacer.opens_at(), At(std::chrono::nanoseconds(10'309)));  // 2500 bytes at a quarter of the rate
  pacer.Set(true, Path(), {.bytes = 0, .link_bytes = 60'000, .start_bytes = 60'000});
  EXPECT_FALSE(pacer.paced());
  EXPECT_TRUE(pacer.open());
}

}  // namespace
}  // namespace sluice
