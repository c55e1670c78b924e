#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "sluice/plan.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduling/grants_options.h"
#include "tests/unit/scheduling/schedule_driver.h"

// Flow control does not hold back the headers of responses. The schedule leaves room for them by their earlier sizes.
namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kLarge = 4000;

TEST(HeadersTest, LargeOnesLetFewerRequestsLeave) {
  ScheduleDriver link(GrantsOptions());
  EXPECT_EQ(link.Submit(At(0ms), std::vector<int64_t>(20, 1000)).size(), 17);
  link.Headers(0, 1500);
  EXPECT_EQ(link.state().grant_window, 17) << "the response is not ready";
  link.Ready(At(20ms), 0, 1000);
  EXPECT_EQ(link.state().grant_window, 10'000 / 3 / 1500);
}

TEST(HeadersTest, SmallOnesTakeTheirUsualRoom) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), std::vector<int64_t>(20, 1000));
  for (uint64_t tag = 0; tag < 10; ++tag) {
    link.Headers(tag, 60);
    link.Finish(At(20ms), tag);
  }
  EXPECT_EQ(link.state().grant_window, 17);
}

TEST(HeadersTest, AnErrorIsItsHeadWithItsTrailers) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), std::vector<int64_t>(20, 1000));
  link.Headers(0, 200);
  link.Headers(0, 1300);
  link.Finish(At(20ms), 0);
  EXPECT_EQ(link.state().grant_window, 10'000 / 3 / 1500);
}

// They follow the message, mostly in its last packet.
TEST(HeadersTest, TrailersOfAMessageDoNotCount) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), std::vector<int64_t>(20, 1000));
  link.Headers(0, 60);
  link.Ready(At(20ms), 0, 1000);
  link.Receive(At(21ms), 0, 1000);
  link.Headers(0, kLarge);
  link.Finish(At(21ms), 0);
  link.Headers(0, kLarge);
  EXPECT_EQ(link.state().grant_window, 17);
}

// Their streams may wait a long time for a reset, and a hung rack must not close the budget.
TEST(HeadersTest, ThoseOfExpiredCallsAreChargedUntilTheyHaveDrained) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), std::vector<int64_t>(17, 1000), At(5ms));
  link.Timer(At(5ms));
  EXPECT_EQ(link.state().in_flight_bytes, 17 * 192);
  link.Timer(At(16ms));
  EXPECT_EQ(link.state().in_flight_bytes, 0) << "after R + B/C";
  EXPECT_EQ(link.state().in_flight_calls, 17);
}

TEST(HeadersTest, BytesThatAreGrantedLeaveRoomForThem) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {3000, 3000, 3000, 3000});
  link.Headers(0, 2100);
  EXPECT_THAT(link.Ready(At(20ms), 0, 3000), ElementsAre("grant 0 3000")) << "alone";
  EXPECT_THAT(link.Ready(At(20ms), 1, 3000), IsEmpty()) << "the headers of two others may come";
  link.Headers(2, 2100);
  EXPECT_THAT(link.Ready(At(20ms), 2, 3000), ElementsAre("grant 1 3000")) << "those of one";
}

// All workers respond with an error of a few KB, as in an outage. Small responses are granted early.
class HeadersOfErrorsTest : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Expecting, HeadersOfErrorsTest, ::testing::Values(100, 10'000),
                         ::testing::PrintToStringParamName());

TEST_P(HeadersOfErrorsTest, DoNotOverflowThePort) {
  ScheduleOptions options;
  options.profile.buffer_bytes = 32 << 10;
  const int64_t error_bytes = BufferCostBytes(options.profile, kLarge);
  ScheduleDriver link(options);
  size_t out = link.Submit(At(0ms), std::vector<int64_t>(500, GetParam())).size();
  ASSERT_GT(static_cast<int64_t>(out) * error_bytes, options.profile.buffer_bytes) << "before the first error";
  uint64_t next = 0;
  for (auto now = 1ms; next < 500; now += 10ms) {
    ASSERT_GT(out, 0);
    size_t sent = 0;
    for (const uint64_t end = next + std::exchange(out, 0); next < end; ++next) {
      link.Headers(next, kLarge);
      sent += link.Finish(At(now), next).size();
    }
    out = sent;
    EXPECT_LE(static_cast<int64_t>(out) * error_bytes, options.profile.buffer_bytes);
  }
}

}  // namespace
}  // namespace sluice
