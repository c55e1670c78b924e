#include "lib/link/reset_allowance.h"

#include <chrono>

#include "gtest/gtest.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;

TEST(ResetAllowanceTest, ABurstAndThenFiveASecond) {
  ResetAllowance allowance;
  const TimePoint start = TimePoint() + std::chrono::hours(1);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(allowance.Take(start)) << i;
  EXPECT_FALSE(allowance.Take(start));
  EXPECT_FALSE(allowance.Take(start + 199ms));
  EXPECT_TRUE(allowance.Take(start + 201ms));
  EXPECT_FALSE(allowance.Take(start + 201ms));
  int taken = 0;
  while (allowance.Take(start + std::chrono::hours(2))) ++taken;
  EXPECT_EQ(taken, 100) << "it saves no more than a burst";
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
