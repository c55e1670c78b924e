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

// Requests that may be out to a worker whose responses have headers of this size: of 20 calls, beside 10 to another
// one.
int64_t RequestsAfter(int64_t wire_bytes, uint32_t worker) {
  ScheduleDriver link(GrantsOptions());
  link.set_worker(1);
  link.Submit(At(0ms), {9000});
  link.Headers(0, wire_bytes);
  link.Finish(At(20ms), 0);
  link.set_worker(worker);
  link.Submit(At(21ms), std::vector<int64_t>(20, 9000));
  return link.state().ungranted_calls;
}

TEST(HeadersTest, LargeOnesLetFewerRequestsLeaveToTheirWorkerAlone) {
  EXPECT_EQ(RequestsAfter(60, 1), 17);
  EXPECT_EQ(RequestsAfter(1500, 1), 2) << "each takes 1308 bytes beyond the usual ones, of a third of the budget";
  EXPECT_EQ(RequestsAfter(9000, 1), 1);
  EXPECT_EQ(RequestsAfter(9000, 2), 17);
}

TEST(HeadersTest, AnErrorIsItsHeadWithItsTrailers) {
  ScheduleDriver link(GrantsOptions());
  link.set_worker(1);
  link.Submit(At(0ms), {9000});
  link.Headers(0, 200);
  link.Headers(0, 1300);
  link.Finish(At(20ms), 0);
  link.Submit(At(21ms), std::vector<int64_t>(20, 9000));
  EXPECT_EQ(link.state().ungranted_calls, 2);
}

// They follow the message, mostly in its last packet.
TEST(HeadersTest, TrailersOfAMessageDoNotCount) {
  ScheduleDriver link(GrantsOptions());
  link.set_worker(1);
  link.Submit(At(0ms), {9000});
  link.Headers(0, 60);
  link.Ready(At(20ms), 0, 1000);
  link.Receive(At(21ms), 0, 1000);
  link.Headers(0, kLarge);
  link.Finish(At(21ms), 0);
  link.Headers(0, kLarge);
  link.Submit(At(21ms), std::vector<int64_t>(20, 9000));
  EXPECT_EQ(link.state().ungranted_calls, 17);
}

// One worker responds with large errors as fast as it is asked.
TEST(HeadersTest, ThoseOfOneWorkerCloseNoWindowOfOthers) {
  ScheduleDriver link(GrantsOptions());
  link.set_worker(1);
  link.Submit(At(0ms), std::vector<int64_t>(4, 9000));
  for (const uint64_t tag : {0, 1}) {
    link.Headers(tag, 8000);
    link.Finish(At(20ms), tag);
  }
  link.set_worker(2);
  link.Submit(At(21ms), std::vector<int64_t>(20, 9000));
  EXPECT_GE(link.state().ungranted_calls, 17);
  EXPECT_EQ(link.Ready(At(40ms), 4, 3000).front(), "grant 4 3000");
}

// The next responses could fill the budget again and again.
TEST(HeadersTest, LargeOnesHaveTheirTurnOnABusyLink) {
  ScheduleDriver link(GrantsOptions());
  link.set_worker(1);
  link.Submit(At(0ms), {9000});
  link.Headers(0, 3000);
  link.Finish(At(20ms), 0);
  link.set_worker(0);
  link.Submit(At(21ms), {2'000'000});
  EXPECT_EQ(link.Ready(At(41ms), 1, 2'000'000).size(), 3) << "the link is full";
  link.set_worker(1);
  EXPECT_THAT(link.Submit(At(42ms), {9000}), IsEmpty());
  EXPECT_THAT(link.Receive(At(43ms), 1, 2991), ElementsAre("send 2")) << "before the next part";
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
  link.set_worker(1);
  link.Submit(At(0ms), {9000});
  link.Headers(0, 3000);
  link.Finish(At(20ms), 0);
  link.Submit(At(21ms), {9000});
  for (const uint32_t worker : {2, 3, 4}) {
    link.set_worker(worker);
    link.Submit(At(21ms), {9000});
  }
  EXPECT_THAT(link.Ready(At(40ms), 2, 3300), ElementsAre("grant 2 3300"));
  EXPECT_THAT(link.Ready(At(40ms), 3, 3300), ElementsAre("grant 3 3300"));
  EXPECT_THAT(link.Ready(At(40ms), 4, 500), IsEmpty()) << "the headers of the other worker may come";
  EXPECT_THAT(link.CancelCall(At(41ms), 1), ElementsAre("abort 1"));
  EXPECT_THAT(link.Timer(At(41ms) + kDrainTime), ElementsAre("grant 4 500"));
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
