#include "lib/scheduling/grant_window.h"

#include "sluice/plan.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using std::chrono::nanoseconds;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""us;

// A byte takes a microsecond; a full buffer delays a packet by at most 11 ms.
ScheduleOptions TestOptions() {
  ScheduleOptions options;
  options.profile.capacity_bytes_per_second = 1e6;
  options.profile.buffer_bytes = 10'000;
  options.profile.propagation_rtt = absl::Milliseconds(1);
  return options;
}

TEST(RequestsTest, BeforeTheFirstAnswerTheirHeadersMayTakeAThirdOfTheBudget) {
  const GrantWindow window(TestOptions());
  EXPECT_EQ(window.Requests(57'599), 99);
  EXPECT_EQ(window.Requests(57'600), 100);
}

TEST(RequestsTest, SmallBudgetHasRoomForOne) {
  EXPECT_EQ(GrantWindow(TestOptions()).Requests(1), 1);
}

TEST(RequestsTest, CoversTheTimeThatWorkersThinkAndAStock) {
  GrantWindow window(TestOptions());
  window.Observe(20ms, 1000);
  EXPECT_EQ(window.Requests(1'000'000), 20 + 4);
  GrantWindow rounded_up(TestOptions());
  rounded_up.Observe(20ms + 1us, 1000);
  EXPECT_EQ(rounded_up.Requests(1'000'000), 21 + 4);
}

TEST(RequestsTest, TheFirstOnesAreThoseThatTheLinkNeeds) {
  GrantWindow window(TestOptions());
  EXPECT_EQ(window.FirstRequests(57'600), 100);
  window.Observe(20ms, 1000);
  EXPECT_EQ(window.FirstRequests(1'000'000), 20);
  EXPECT_EQ(window.FirstRequests(9 * 3 * 192), 9);
}

TEST(RequestsTest, NeverMoreThanTheBudgetHasRoomForTheirHeaders) {
  GrantWindow window(TestOptions());
  window.Observe(20ms, 1000);
  EXPECT_EQ(window.Requests(9 * 3 * 192), 9);
}

// A link of 1 byte per microsecond whose path holds 20,000 bytes. A budget of 10,000 uses half of the link.
TEST(RequestsTest, TheLinkTakesNoMoreThanTheBudgetInARoundTrip) {
  ScheduleOptions options = TestOptions();
  options.profile.propagation_rtt = absl::Milliseconds(20);
  GrantWindow window(options);
  window.Observe(20ms, 1000);
  EXPECT_EQ(window.Requests(10'000), 10 + 4);
  EXPECT_EQ(window.Requests(20'000), 20 + 4);
  EXPECT_EQ(window.Requests(1'000'000), 20 + 4);
}

TEST(RequestsTest, WorkersThatAnswerAtOnceLeaveTheStock) {
  GrantWindow window(TestOptions());
  window.Observe(nanoseconds(0), 1000);
  EXPECT_EQ(window.Requests(1'000'000), 4);
}

TEST(HeaderBytesTest, CountsBytesOrFullFramesAsTheBufferDoes) {
  ScheduleOptions options = TestOptions();
  EXPECT_EQ(GrantWindow(options).HeaderBytes(10), 1920);
  options.profile.buffer_bytes = 0;
  options.profile.buffer_packets = 20;
  EXPECT_EQ(GrantWindow(options).HeaderBytes(10), 10 * options.profile.frame_bytes);
  EXPECT_EQ(GrantWindow(options).Requests(20 * options.profile.frame_bytes), 6);
}

TEST(HeaderBytesTest, AreTheMeanOfThoseThatCameAndNoLessThanTheUsualOnes) {
  GrantWindow window(TestOptions());
  window.ObserveHeaders(4000);
  EXPECT_EQ(window.HeaderBytes(1), BufferCostBytes(TestOptions().profile, 4000));
  EXPECT_EQ(window.Requests(57'600), 57'600 / 3 / window.HeaderBytes(1));
  window.ObserveHeaders(4000 + 640);
  EXPECT_EQ(window.HeaderBytes(1), BufferCostBytes(TestOptions().profile, 4010));
  window.SetProfile(TestOptions().profile, false);
  EXPECT_EQ(window.HeaderBytes(1), BufferCostBytes(TestOptions().profile, 4010));
  for (int i = 0; i < 1000; ++i) window.ObserveHeaders(20);
  EXPECT_EQ(window.HeaderBytes(1), 192);
}

TEST(HeaderBytesTest, LargeOnesTakeSeveralFrames) {
  ScheduleOptions options = TestOptions();
  options.profile.buffer_bytes = 0;
  options.profile.buffer_packets = 20;
  GrantWindow window(options);
  window.ObserveHeaders(options.profile.packet_payload_bytes + 1);
  EXPECT_EQ(window.HeaderBytes(1), 2 * options.profile.frame_bytes);
}

TEST(ObserveTest, FollowsTheMeanOfTheLastHundredOrSo) {
  GrantWindow window(TestOptions());
  window.Observe(20ms, 1000);
  window.Observe(84ms, 1000);
  EXPECT_EQ(window.Requests(1'000'000), 21 + 4);  // 1/64 of the way
  for (int i = 0; i < 63; ++i) window.Observe(84ms, 1000);
  EXPECT_GT(window.Requests(1'000'000), 52);  // 52 + 4 is half of the way
  EXPECT_LT(window.Requests(1'000'000), 75);
  for (int i = 0; i < 1000; ++i) window.Observe(84ms, 1000);
  EXPECT_EQ(window.Requests(1'000'000), 84 + 4);
}

TEST(ObserveTest, LargerAnswersNeedFewerRequests) {
  GrantWindow window(TestOptions());
  window.Observe(20ms, 1000);
  for (int i = 0; i < 1000; ++i) window.Observe(20ms, 10'000);
  EXPECT_EQ(window.Requests(1'000'000), 3 + 4);  // the mean is slightly lower
}

TEST(StraggleAfterTest, IsTheTimeOfAStallBeforeTheFirstAnswer) {
  ScheduleOptions options = TestOptions();
  options.stall_timeout = absl::Milliseconds(70);
  EXPECT_EQ(GrantWindow(options).StraggleAfter(), 70ms);
  options.stall_timeout = absl::InfiniteDuration();
  EXPECT_EQ(GrantWindow(options).StraggleAfter(), 88ms);
}

TEST(StraggleAfterTest, IsAtMostEightFullBuffers) {
  GrantWindow window(TestOptions());
  window.Observe(15'000ms, 1000);
  EXPECT_EQ(window.StraggleAfter(), 88ms);
  LinkProfile profile = TestOptions().profile;
  profile.capacity_bytes_per_second *= 10;
  window.SetProfile(profile, false);
  EXPECT_LT(window.StraggleAfter(), 88ms);
}

TEST(StraggleAfterTest, IsTwiceTheMeanAndNeverLessThanAFullBuffer) {
  GrantWindow slow(TestOptions());
  slow.Observe(20ms, 1000);
  EXPECT_EQ(slow.StraggleAfter(), 40ms);
  GrantWindow fast(TestOptions());
  fast.Observe(1ms, 1000);
  EXPECT_EQ(fast.StraggleAfter(), 11ms);
}

}  // namespace
}  // namespace sluice
