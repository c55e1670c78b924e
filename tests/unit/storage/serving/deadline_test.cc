#include "lib/storage/serving/deadline.h"

#include "gtest/gtest.h"

namespace sluice {
namespace {

constexpr absl::Duration kReserve = absl::Milliseconds(5);

TEST(TimeForLevelBelowTest, LeavesTheReserve) {
  EXPECT_EQ(TimeForLevelBelow(absl::Seconds(1), kReserve), absl::Milliseconds(995));
}

TEST(TimeForLevelBelowTest, HasNoEndWhereTheCallHasNone) {
  EXPECT_EQ(TimeForLevelBelow(absl::InfiniteDuration(), kReserve), absl::InfiniteDuration());
}

TEST(TimeForLevelBelowTest, IsNothingWhereTheReserveIsAllThatIsLeft) {
  EXPECT_EQ(TimeForLevelBelow(kReserve, kReserve), absl::ZeroDuration());
  EXPECT_EQ(TimeForLevelBelow(absl::Milliseconds(1), kReserve), absl::ZeroDuration());
  EXPECT_EQ(TimeForLevelBelow(-absl::Seconds(1), kReserve), absl::ZeroDuration());
}

// Each level subtracts its reserve, so the lowest level has the least time.
TEST(TimeForLevelBelowTest, DividesADeadlineLevelByLevel) {
  absl::Duration left = absl::Milliseconds(20);
  for (const int64_t milliseconds : {15, 10, 5, 0, 0}) {
    left = TimeForLevelBelow(left, kReserve);
    EXPECT_EQ(left, absl::Milliseconds(milliseconds));
  }
}

}  // namespace
}  // namespace sluice
