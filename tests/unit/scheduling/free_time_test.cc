#include "lib/scheduling/free_time.h"

#include "gtest/gtest.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""ns;

TimePoint At(std::chrono::milliseconds time) {
  return TimePoint() + time;
}

TEST(FreeTimeTest, TakesTheFirstFreeTime) {
  FreeTime time(At(0ms));
  EXPECT_EQ(time.TakeFirst(At(10ms), 5ms), At(15ms));
  EXPECT_EQ(time.TakeFirst(At(8ms), 4ms), At(17ms)) << "2 ms before the first, 2 ms behind it";
  EXPECT_EQ(time.TakeFirst(At(0ms), 3ms), At(3ms));
  EXPECT_EQ(time.TakeFirst(At(0ms), 6ms), At(18ms));
}

TEST(FreeTimeTest, TakesIntervals) {
  FreeTime time;
  time.Add(At(0ms), At(5ms));
  time.Add(At(5ms), At(10ms));
  time.Add(At(20ms), At(30ms));
  time.Take(At(2ms), At(3ms));
  time.Take(At(8ms), At(21ms));
  time.Take(At(29ms), At(40ms));
  EXPECT_EQ(time.TakeBefore(At(9ms)), 7ms);
  EXPECT_EQ(time.TakeBefore(At(25ms)), 4ms);
  EXPECT_EQ(time.TakeBefore(At(50ms)), 4ms);
  EXPECT_EQ(time.TakeBefore(At(50ms)), 0ms);
}

TEST(FreeTimeTest, ForgetsTheOldestIntervals) {
  FreeTime time;
  for (int i = 0; i < static_cast<int>(FreeTime::kMost) + 10; ++i) {
    time.Add(TimePoint(2ns * i), TimePoint(2ns * i + 1ns));
  }
  EXPECT_EQ(time.TakeBefore(At(1ms)), std::chrono::nanoseconds(FreeTime::kMost));
}

}  // namespace
}  // namespace sluice
