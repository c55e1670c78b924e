#include "tools/sluice_calibrate/timer_lateness.h"

#include <algorithm>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::Each;
using ::testing::Ge;
using ::testing::Gt;
using ::testing::SizeIs;

TEST(TimerLatenessTest, NoTimerFiresBeforeItsTime) {
  const auto samples = MeasureTimerLateness([] { return false; });
  ASSERT_TRUE(samples.ok()) << samples.status();
  EXPECT_THAT(samples->lateness, SizeIs(Ge(1000)));
  EXPECT_THAT(samples->lateness, Each(Gt(absl::ZeroDuration())));
  EXPECT_LT(*std::min_element(samples->lateness.begin(), samples->lateness.end()), absl::Milliseconds(20))
      << "later than two ticks of the slowest kernel, every time";
  EXPECT_THAT(samples->steps, SizeIs(Ge(2)));
  EXPECT_THAT(samples->steps, Each(Gt(absl::ZeroDuration())));
}

TEST(TimerLatenessTest, EndsWhenItIsInterrupted) {
  int asked = 0;
  const auto samples = MeasureTimerLateness([&asked] { return ++asked == 3; });
  EXPECT_TRUE(absl::IsCancelled(samples.status())) << samples.status();
  EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace sluice
