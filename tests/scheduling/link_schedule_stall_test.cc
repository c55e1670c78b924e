#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/scheduling/grants_options.h"
#include "tests/scheduling/schedule_driver.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::chrono::nanoseconds kTick{1};
constexpr auto kDrainTime = 11ms;  // R + B/C
constexpr auto kStallTime = 300ms + kDrainTime;

TEST(ProgressTest, CallIsChargedForWhatIsStillExpected) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000, 5000});
  link.Ready(At(1ms), 0);
  EXPECT_THAT(link.Ready(At(1ms), 1), IsEmpty());
  EXPECT_THAT(link.Progress(At(2ms), 0, 6000), IsEmpty());
  EXPECT_EQ(link.state().in_flight_bytes, 6000);
  EXPECT_THAT(link.Progress(At(5ms), 0, 3000), ElementsAre("grant 1"));
  EXPECT_EQ(link.state().in_flight_bytes, 8000);
  link.Finish(At(8ms), 0);
  EXPECT_EQ(link.state().in_flight_bytes, 5000);
}

TEST(ProgressTest, DebitHoldsTheOthersBackUntilItFits) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {1000, 1000, 1000});
  link.Ready(At(1ms), 0);
  EXPECT_THAT(link.Progress(At(2ms), 0, 50'000), IsEmpty());
  EXPECT_EQ(link.state().in_flight_bytes, 50'000);
  EXPECT_THAT(link.Ready(At(3ms), 1), IsEmpty());
  EXPECT_THAT(link.Submit(At(3ms), {1000}), IsEmpty());
  EXPECT_THAT(link.Progress(At(4ms), 0, 100), ElementsAre("grant 1", "send 3"));
}

TEST(ProgressTest, NothingLeftStillCostsAPacketAndBoundsAreKept) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000});
  link.Ready(At(1ms), 0);
  link.Progress(At(2ms), 0, 0);
  EXPECT_EQ(link.state().in_flight_bytes, 1);
  link.Progress(At(2ms), 0, -7);
  EXPECT_EQ(link.state().in_flight_bytes, 1);
}

TEST(ProgressTest, OnlyOfCallsInFlight) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000, 9000, 9000});
  link.Ready(At(1ms), 0);
  link.Ready(At(1ms), 1);
  EXPECT_THAT(link.Progress(At(2ms), 1, 10), IsEmpty());  // ready
  EXPECT_THAT(link.Progress(At(2ms), 2, 10), IsEmpty());  // sent
  EXPECT_THAT(link.CancelCall(At(2ms), 0), ElementsAre("abort 0"));
  EXPECT_THAT(link.Progress(At(2ms), 0, 10), IsEmpty());
  EXPECT_EQ(link.state().in_flight_bytes, 9000);
}

TEST(ProgressTest, CountsInEveryDiscipline) {
  LinkSchedule::Options options = GrantsOptions();
  options.discipline = Discipline::kRolling;
  ScheduleDriver link(options);
  EXPECT_THAT(link.Submit(At(0ms), {9000, 5000}), ElementsAre("send 0"));
  EXPECT_THAT(link.Progress(At(1ms), 0, 5000), ElementsAre("send 1"));
  EXPECT_EQ(link.next_timer(), TimePoint::max());
}

TEST(StallTest, BudgetOfAnAnswerThatDoesNotComeGoesToTheOthers) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000, 9000});
  link.Ready(At(1ms), 0);
  link.Ready(At(1ms), 1);
  EXPECT_EQ(link.next_timer(), At(1ms + kStallTime));
  EXPECT_THAT(link.Timer(At(1ms + kStallTime) - kTick), IsEmpty());
  EXPECT_THAT(link.Timer(At(1ms + kStallTime)), ElementsAre("stall 0", "grant 1"));
  EXPECT_EQ(link.state().in_flight_bytes, 9000);
  EXPECT_EQ(link.state().in_flight_calls, 2);
  EXPECT_THAT(link.Finish(At(400ms), 0), IsEmpty());  // it came after all
  EXPECT_EQ(link.state().in_flight_bytes, 9000);
  EXPECT_THAT(link.Finish(At(400ms), 1), IsEmpty());
  EXPECT_EQ(link.state().in_flight_bytes, 0);
  EXPECT_EQ(link.next_timer(), TimePoint::max());
}

TEST(StallTest, NothingDrainsAfterTheAbortOfAStalledCall) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000});
  link.Ready(At(0ms), 0);
  link.Timer(At(kStallTime));
  link.Finish(At(400ms), 0, CallEnd::kAborted);
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(StallTest, ProgressStartsTheTimeAgain) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000});
  link.Ready(At(0ms), 0);
  link.Progress(At(200ms), 0, 4000);
  EXPECT_EQ(link.next_timer(), At(200ms + kStallTime));
  EXPECT_THAT(link.Timer(At(200ms + kStallTime)), ElementsAre("stall 0"));
}

TEST(StallTest, CallThatGoesOnIsChargedAgainAndMayStallAgain) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000, 9000});
  link.Ready(At(0ms), 0);
  link.Ready(At(0ms), 1);
  EXPECT_THAT(link.Timer(At(kStallTime)), ElementsAre("stall 0", "grant 1"));
  link.Progress(At(kStallTime + 1ms), 0, 8000);
  EXPECT_EQ(link.state().in_flight_bytes, 17'000);
  EXPECT_THAT(link.Timer(At(2 * kStallTime)), ElementsAre("stall 1"));
  EXPECT_THAT(link.Timer(At(2 * kStallTime + 1ms)), ElementsAre("stall 0"));
}

TEST(StallTest, AbortedCallDoesNotStall) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000});
  link.Ready(At(0ms), 0);
  link.CancelCall(At(1ms), 0);
  EXPECT_EQ(link.next_timer(), TimePoint::max());
  EXPECT_EQ(link.state().in_flight_bytes, 9000);
}

TEST(StallTest, LargeAnswerHasTheTimeThatItNeedsAlone) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {500'000});
  link.Ready(At(0ms), 0);
  EXPECT_EQ(link.next_timer(), At(300ms + 1ms + 500ms));
}

TEST(StallTest, BoundedCallHasTheTimeOfAllItsRounds) {
  LinkSchedule::Options options = GrantsOptions();
  options.max_in_flight_per_call_bytes = 2000;
  ScheduleDriver link(options);
  link.Submit(At(0ms), {7000});
  link.Ready(At(0ms), 0);
  EXPECT_EQ(link.next_timer(), At(300ms + 4 * kDrainTime));
}

TEST(StallTest, LargeAnswerDoesNotHideAStallBehindIt) {
  LinkSchedule::Options options = GrantsOptions();
  options.max_in_flight_per_call_bytes = 2000;
  ScheduleDriver link(options);
  link.Submit(At(0ms), {2'000'000, 1000});
  link.Ready(At(0ms), 0);
  EXPECT_THAT(link.Ready(At(0ms), 1), ElementsAre("grant 1"));
  EXPECT_THAT(link.Timer(At(kStallTime)), ElementsAre("stall 1"));
}

TEST(StragglerTest, LeavesTheWindow) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), std::vector<int64_t>(10, 1000));
  link.Ready(At(1ms), 0);  // a window of 5; stragglers after 11 ms, R + B/C
  EXPECT_THAT(link.Submit(At(1ms), {1000}), IsEmpty());
  EXPECT_EQ(link.state().straggling_calls, 0);
  EXPECT_EQ(link.next_timer(), At(11ms));
  EXPECT_THAT(link.Timer(At(11ms)), ElementsAre("send 10"));
  EXPECT_EQ(link.state().straggling_calls, 9);
  EXPECT_EQ(link.state().ungranted_calls, 10);
  EXPECT_THAT(link.Ready(At(12ms), 1), ElementsAre("grant 1"));
  EXPECT_EQ(link.state().straggling_calls, 8);
  EXPECT_THAT(link.CancelCall(At(12ms), 2), ElementsAre("abort 2"));
  EXPECT_EQ(link.state().straggling_calls, 7);
  link.Finish(At(12ms), 3);
  EXPECT_EQ(link.state().straggling_calls, 6);
}

TEST(StragglerTest, ThereIsStillRoomForItsHeaders) {
  const int64_t room = 10'000 - 1000 - (6 + 8) * 192;  // its own time to ready widens the window to six
  for (const int64_t size : {room, room + 1}) {
    ScheduleDriver link(GrantsOptions());
    link.Submit(At(0ms), std::vector<int64_t>(10, 1000));
    link.Ready(At(1ms), 0);
    link.Timer(At(11ms));
    ASSERT_EQ(link.state().straggling_calls, 9);
    EXPECT_EQ(link.Ready(At(11ms), 1, size).size(), size == room ? 1 : 0) << size;
  }
}

TEST(StragglerTest, RequestsLeaveWhileAllTheirHeadersFit) {
  LinkSchedule::Options options = GrantsOptions();
  options.budget_bytes = 960;  // five headers, a window of one
  options.stall_timeout = absl::Milliseconds(20);
  ScheduleDriver link(options);
  EXPECT_THAT(link.Submit(At(0ms), std::vector<int64_t>(8, 100)), ElementsAre("send 0"));
  for (int sent = 1; sent < 5; ++sent) {
    EXPECT_THAT(link.Timer(At(sent * 20ms)), ElementsAre("send " + std::to_string(sent)));
  }
  // Then one at a time, so that workers that never answer can not stop the others.
  EXPECT_THAT(link.Timer(At(100ms)), ElementsAre("send 5"));
  EXPECT_THAT(link.Ready(At(101ms), 5), ElementsAre("grant 5"));
  EXPECT_THAT(link.Finish(At(102ms), 5), ElementsAre("send 6"));
}

TEST(StragglerTest, NeedsNoTimerWhenNothingWaits) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {1000});
  EXPECT_EQ(link.next_timer(), TimePoint::max());
}

}  // namespace
}  // namespace sluice
