#include "lib/link/reset_allowance.h"

#include <chrono>

#include "gtest/gtest.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;

// Takes all allowed resets within the time, and returns their number.
int TakeAll(ResetAllowance& allowance, TimePoint now, TimePoint::duration time) {
  int taken = 0;
  for (const TimePoint end = now + time; now < end; now += 1ms) {
    while (allowance.Take(now)) ++taken;
  }
  return taken;
}

TEST(ResetAllowanceTest, ABurstAndThenFiveASecond) {
  ResetAllowance allowance;
  const TimePoint start = TimePoint() + std::chrono::hours(1);
  for (int i = 0; i < 15; ++i) EXPECT_TRUE(allowance.Take(start)) << i;
  EXPECT_FALSE(allowance.Take(start));
  EXPECT_FALSE(allowance.Take(start + 199ms));
  EXPECT_TRUE(allowance.Take(start + 201ms));
  EXPECT_FALSE(allowance.Take(start + 201ms));
  int taken = 0;
  while (allowance.Take(start + std::chrono::hours(2))) ++taken;
  EXPECT_EQ(taken, 15) << "it saves no more than a burst";
}

// Netty's servers end a connection after 200 resets in 30 s.
TEST(ResetAllowanceTest, NoThirtySecondsHaveMoreThanServersTake) {
  ResetAllowance allowance;
  const TimePoint start = TimePoint() + std::chrono::hours(1);
  const int taken = TakeAll(allowance, start, std::chrono::seconds(30));
  EXPECT_GE(taken, 160);
  EXPECT_LE(taken, 165);
}

TEST(ResetAllowanceTest, EachLoweringHalvesItDownToOne) {
  const TimePoint start = TimePoint() + std::chrono::hours(1);
  const struct {
    int lowered;
    int least;
    int most;
  } cases[] = {{1, 80, 82}, {2, 39, 41}, {3, 29, 31}, {10, 29, 31}};
  for (const auto& [lowered, least, most] : cases) {
    ResetAllowance allowance;
    for (int i = 0; i < lowered; ++i) allowance.Lower();
    const int taken = TakeAll(allowance, start, std::chrono::seconds(30));
    EXPECT_GE(taken, least) << lowered;
    EXPECT_LE(taken, most) << lowered;
  }
}

TEST(ResetAllowanceTest, ResetsThatAreOnlyCountedDelayTheNext) {
  ResetAllowance allowance;
  const TimePoint start = TimePoint() + std::chrono::hours(1);
  for (int i = 0; i < 20; ++i) allowance.Count(start);
  EXPECT_FALSE(allowance.Take(start + 1199ms));
  EXPECT_LE(allowance.Next(), start + 1201ms);
  EXPECT_TRUE(allowance.Take(allowance.Next()));
  // The delay of the next reset is bounded, even after many resets.
  for (int i = 0; i < 1000; ++i) allowance.Count(start + 1201ms);
  EXPECT_LE(allowance.Next(), start + std::chrono::seconds(5));
}

TEST(ResetAllowanceTest, SaysWhenTheNextOneIsAllowed) {
  ResetAllowance allowance;
  TimePoint now = TimePoint() + std::chrono::hours(1);
  while (allowance.Take(now)) now += 1ms;
  for (int i = 0; i < 1000; ++i) {
    const TimePoint next = allowance.Next();
    EXPECT_GT(next, now);
    EXPECT_LE(next, now + 201ms);
    EXPECT_FALSE(allowance.Take(next - 1ms));
    now = allowance.Next();
    EXPECT_LE(now, next + 1ms);
    EXPECT_TRUE(allowance.Take(now)) << i;
  }
}

}  // namespace
}  // namespace sluice
