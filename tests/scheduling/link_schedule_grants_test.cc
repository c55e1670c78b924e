#include "sluice/plan.h"

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

// What everything in flight needs to drain once, and how long an aborted call stays charged: R + B/C.
constexpr auto kDrainTime = 11ms;

std::vector<int64_t> Calls(size_t count, int64_t size) {
  return std::vector<int64_t>(count, size);
}

TEST(GrantsTest, RequestsLeaveBeforeTheirAnswersFit) {
  ScheduleDriver link(GrantsOptions());
  EXPECT_EQ(link.Submit(At(0ms), Calls(20, 9000)).size(), 17);
  EXPECT_EQ(link.state().grant_window, 17);
  EXPECT_EQ(link.state().ungranted_calls, 17);
  EXPECT_EQ(link.state().waiting_calls, 3);
  EXPECT_EQ(link.state().in_flight_calls, 0);
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(GrantsTest, AnswerIsGrantedWhenItIsReadyAndFits) {
  ScheduleDriver link(GrantsOptions());
  EXPECT_THAT(link.Submit(At(0ms), {5000, 5000, 5000}), ElementsAre("send 0", "send 1", "send 2"));
  EXPECT_THAT(link.Ready(At(5ms), 1), ElementsAre("grant 1"));
  EXPECT_EQ(link.state().in_flight_bytes, 5000);
  EXPECT_EQ(link.state().in_flight_calls, 1);
  EXPECT_THAT(link.Ready(At(6ms), 0), IsEmpty());
  EXPECT_EQ(link.state().ungranted_calls, 2);
  EXPECT_THAT(link.Finish(At(10ms), 1), ElementsAre("grant 0"));
  EXPECT_THAT(link.Finish(At(15ms), 0), IsEmpty());
  EXPECT_THAT(link.Ready(At(16ms), 2), ElementsAre("grant 2"));
  EXPECT_THAT(link.Finish(At(21ms), 2), IsEmpty());
  EXPECT_EQ(link.state().ended_calls, 3);
  EXPECT_EQ(link.state().blocks, 0);
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(GrantsTest, OldestBlockFirstThenInTheOrderOfReadiness) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000, 1000, 1000});
  link.Submit(At(0ms), {1000});
  EXPECT_THAT(link.Ready(At(1ms), 0), ElementsAre("grant 0"));
  link.Ready(At(2ms), 3);
  link.Ready(At(3ms), 2);
  link.Ready(At(4ms), 1);
  EXPECT_THAT(link.Finish(At(9ms), 0), ElementsAre("grant 2", "grant 1", "grant 3"));
}

TEST(GrantsTest, ReadyAnswerThatDoesNotFitIsNotOvertaken) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {5000, 5000, 1000});
  link.Ready(At(5ms), 0);
  EXPECT_THAT(link.Ready(At(6ms), 1), IsEmpty());
  EXPECT_THAT(link.Ready(At(7ms), 2), IsEmpty());
  EXPECT_THAT(link.Finish(At(8ms), 0), ElementsAre("grant 1", "grant 2"));
}

TEST(GrantsTest, CallThatIsNotReadyHoldsNoBudgetAndBlocksNobody) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000, 9000});
  link.Submit(At(0ms), {9000});
  EXPECT_THAT(link.Ready(At(1ms), 2), ElementsAre("grant 2"));
  EXPECT_THAT(link.Finish(At(10ms), 2), IsEmpty());
  EXPECT_THAT(link.Ready(At(11ms), 1), ElementsAre("grant 1"));
}

TEST(GrantsTest, AnswersComeBeforeRequests) {
  LinkSchedule::Options options = GrantsOptions();
  options.budget_bytes = 1000;  // one request at a time
  ScheduleDriver link(options);
  EXPECT_THAT(link.Submit(At(0ms), {700, 700, 700}), ElementsAre("send 0"));
  EXPECT_THAT(link.Ready(At(1ms), 0), ElementsAre("grant 0", "send 1"));
}

TEST(GrantsTest, ThereIsRoomForTheHeadersOfAFullWindow) {
  const int64_t room = 10'000 - 1000 - 5 * 192;  // a window of ceil(1 ms * 1 B/us / 1000 B) + 4
  for (const int64_t size : {room, room + 1}) {
    ScheduleDriver link(GrantsOptions());
    link.Submit(At(0ms), {1000, 1000});
    EXPECT_THAT(link.Ready(At(1ms), 0), ElementsAre("grant 0"));
    ASSERT_EQ(link.state().grant_window, 5);
    EXPECT_EQ(link.Ready(At(1ms), 1, size).size(), size == room ? 1 : 0) << size;
  }
}

TEST(GrantsTest, ThereIsRoomForTheHeadersOfAllThatIsOutWhenTheWindowShrinks) {
  const int64_t room = 10'000 - 1000 - 15 * 192;
  for (const int64_t size : {room, room + 1}) {
    ScheduleDriver link(GrantsOptions());
    link.Submit(At(0ms), Calls(17, 1000));
    EXPECT_THAT(link.Ready(At(1ms), 0), ElementsAre("grant 0"));
    EXPECT_EQ(link.Ready(At(1ms), 1, size).size(), size == room ? 1 : 0) << size;
  }
}

TEST(GrantsTest, RequestLeavesOnlyWithRoomForItsHeaders) {
  for (const int64_t size : {9808, 9809}) {
    ScheduleDriver link(GrantsOptions());
    link.Submit(At(0ms), {1000});
    EXPECT_THAT(link.Ready(At(1ms), 0, size), ElementsAre("grant 0"));
    EXPECT_EQ(link.Submit(At(1ms), {1000}).size(), size == 9808 ? 1 : 0) << size;
  }
}

TEST(GrantsTest, AnswerLargerThanTheBudgetGoesAlone) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {1000, 20'000, 1000});
  link.Ready(At(1ms), 0);
  EXPECT_THAT(link.Ready(At(1ms), 1), IsEmpty());
  EXPECT_THAT(link.Finish(At(2ms), 0), ElementsAre("grant 1"));
  EXPECT_THAT(link.Ready(At(3ms), 2), IsEmpty());
  EXPECT_THAT(link.Submit(At(3ms), {1000}), IsEmpty());
  EXPECT_THAT(link.Finish(At(22ms), 1), ElementsAre("grant 2", "send 3"));
}

TEST(GrantsTest, SmallestBudgetServesOneCallAfterTheOther) {
  LinkSchedule::Options options = GrantsOptions();
  options.budget_bytes = 1;
  ScheduleDriver link(options);
  EXPECT_THAT(link.Submit(At(0ms), {1000, 1000}), ElementsAre("send 0"));
  EXPECT_THAT(link.Ready(At(1ms), 0), ElementsAre("grant 0"));
  EXPECT_THAT(link.Finish(At(2ms), 0), ElementsAre("send 1"));
  EXPECT_THAT(link.Ready(At(3ms), 1), ElementsAre("grant 1"));
}

TEST(GrantsTest, PacketBufferKeepsAFrameForEachHeader) {
  LinkSchedule::Options options = GrantsOptions();
  options.profile.buffer_bytes = 0;
  options.profile.buffer_packets = 12;
  ScheduleDriver link(options);
  EXPECT_EQ(link.Submit(At(0ms), Calls(20, 1000)).size(), 4);
}

TEST(GrantsAtOnceTest, RequestsLeaveWithTheirGrantsWhereAllFitsAThirdOfTheBudget) {
  ScheduleDriver link(GrantsOptions());
  link.SizesAreCertain();
  EXPECT_THAT(link.Submit(At(0ms), {1000, 1000, 1000}),
              ElementsAre("send granted 0", "send granted 1", "send granted 2"));
  EXPECT_EQ(link.state().in_flight_bytes, 3000);
  EXPECT_EQ(link.state().ungranted_calls, 0);
  EXPECT_THAT(link.Submit(At(1ms), {1000}), ElementsAre("send 3"));
  EXPECT_THAT(link.Ready(At(2ms), 3), ElementsAre("grant 3"));
  link.Finish(At(3ms), 0);
  EXPECT_THAT(link.Submit(At(3ms), {300}), ElementsAre("send granted 4")) << "3000 and 1000 are not asked for any more";
}

TEST(GrantsAtOnceTest, WhatWaitsIsAskedForToo) {
  LinkSchedule::Options options = GrantsOptions();
  options.budget_bytes = 3000;  // a window of 5
  ScheduleDriver link(options);
  link.SizesAreCertain();
  EXPECT_EQ(link.Submit(At(0ms), Calls(6, 1000)),
            (ScheduleDriver::Words{"send 0", "send 1", "send 2", "send 3", "send 4"}));
}

TEST(GrantsAtOnceTest, AGuessWaitsForWhatItsWorkerSays) {
  ScheduleDriver link(GrantsOptions());
  EXPECT_THAT(link.Submit(At(0ms), {1000}), ElementsAre("send 0"));
}

TEST(GrantsAtOnceTest, WorkersMayThinkForAsLongAsTheyLike) {
  ScheduleDriver link(GrantsOptions());
  link.SizesAreCertain();
  link.Submit(At(0ms), {1000});
  EXPECT_EQ(link.next_timer(), TimePoint::max());
  EXPECT_THAT(link.Timer(At(10'000ms)), IsEmpty());
  EXPECT_EQ(link.state().in_flight_bytes, 1000);
  EXPECT_THAT(link.Finish(At(10'001ms), 0), IsEmpty());
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(GrantsReadyTest, AnnouncedSizeTakesThePlaceOfTheOneExpected) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000, 9000});
  EXPECT_THAT(link.Ready(At(1ms), 0, 3000), ElementsAre("grant 0"));
  EXPECT_EQ(link.state().in_flight_bytes, 3000);
  EXPECT_THAT(link.Ready(At(1ms), 1, 3000), ElementsAre("grant 1"));
}

TEST(GrantsReadyTest, AnnouncedSizeOutOfBoundsIsTheNearestBound) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000, 9000});
  link.Ready(At(1ms), 0, -1);
  EXPECT_EQ(link.state().in_flight_bytes, 1);
  link.Finish(At(1ms), 0);
  link.Ready(At(1ms), 1, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(link.state().in_flight_bytes, kMaxResponseBytes);
}

TEST(GrantsReadyTest, TheWindowFollowsTheTimeToReady) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), Calls(30, 1000));
  link.Ready(At(7ms), 0);
  EXPECT_EQ(link.state().grant_window, 11);
}

TEST(GrantsReadyTest, TheStockLeavesWithTheFirstGrant) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {1000});
  link.Ready(At(7ms), 0);
  link.Finish(At(8ms), 0);
  EXPECT_EQ(link.Submit(At(9ms), Calls(20, 1000)).size(), 7);
  EXPECT_EQ(link.state().grant_window, 7 + 4);
  EXPECT_THAT(link.Ready(At(10ms), 1), ElementsAre("grant 1", "send 8", "send 9", "send 10", "send 11", "send 12"));
}

TEST(GrantsReadyTest, OnceAndOnlyForWhatIsOut) {
  LinkSchedule::Options options = GrantsOptions();
  options.budget_bytes = 600;  // a window of one
  ScheduleDriver link(options);
  link.Submit(At(0ms), {600, 600});
  std::vector<Action> actions;
  link.schedule().OnReady(At(1ms), {.slot = 1, .generation = 0}, {}, actions);  // waits
  link.schedule().OnReady(At(1ms), {.slot = 9, .generation = 0}, {}, actions);
  EXPECT_THAT(actions, IsEmpty());
  EXPECT_THAT(link.Ready(At(1ms), 0), ElementsAre("grant 0"));
  EXPECT_THAT(link.Ready(At(2ms), 0, 1), IsEmpty());
  EXPECT_EQ(link.state().in_flight_bytes, 600);
  link.Finish(At(3ms), 0);
  EXPECT_THAT(link.Ready(At(3ms), 0), IsEmpty());
  EXPECT_EQ(link.state().ungranted_calls, 1);
}

TEST(GrantsReadyTest, MeansNothingToOtherDisciplines) {
  LinkSchedule::Options options = GrantsOptions();
  options.discipline = Discipline::kRolling;
  ScheduleDriver link(options);
  link.Submit(At(0ms), {9000, 9000});
  EXPECT_THAT(link.Ready(At(1ms), 0, 1), IsEmpty());
  EXPECT_EQ(link.state().in_flight_bytes, 9000);
  EXPECT_EQ(link.state().grant_window, 0);
}

TEST(GrantsFinishTest, ErrorBeforeTheGrantEndsTheCall) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000, 9000, 9000});
  link.Ready(At(1ms), 0);
  link.Ready(At(1ms), 1);
  EXPECT_THAT(link.Finish(At(2ms), 1), IsEmpty());  // ready
  EXPECT_THAT(link.Finish(At(2ms), 2), IsEmpty());  // sent
  EXPECT_EQ(link.state().ungranted_calls, 0);
  EXPECT_EQ(link.state().in_flight_bytes, 9000);
  link.Finish(At(3ms), 0);
  EXPECT_EQ(link.state().blocks, 0);
}

TEST(GrantsFinishTest, HeadersOfALostRequestMayStillCome) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {1000, 1000});
  link.Finish(At(1ms), 0, CallEnd::kAborted);
  EXPECT_EQ(link.state().in_flight_bytes, 192);
  link.Ready(At(1ms), 1);
  link.Finish(At(2ms), 1);
  link.Timer(At(1ms) + kDrainTime);
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(GrantsFinishTest, NothingOfALostReadyAnswerIsOnTheWay) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000, 9000});
  link.Ready(At(1ms), 0);
  link.Ready(At(1ms), 1);
  link.Finish(At(2ms), 1, CallEnd::kAborted);
  EXPECT_EQ(link.state().in_flight_bytes, 9000);
}

TEST(GrantsAddTest, CallOfABlockThatIsAllOutLeavesAtOnceAndKeepsItsPlace) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000});
  const BlockId first = link.last_block();
  link.Submit(At(0ms), {1000});
  EXPECT_THAT(link.Add(At(0ms), first, 1000), ElementsAre("send 2"));
  link.Ready(At(1ms), 0);
  link.Ready(At(2ms), 1);
  link.Ready(At(3ms), 2);
  EXPECT_THAT(link.Finish(At(9ms), 0), ElementsAre("grant 2", "grant 1"));
}

TEST(GrantsDeadlineTest, AbortsWhatIsNotGranted) {
  LinkSchedule::Options options = GrantsOptions();
  options.budget_bytes = 3 * 192 * 3;  // three requests
  ScheduleDriver link(options);
  link.Submit(At(0ms), {1000, 1000, 1000, 1000}, At(10ms));
  link.Ready(At(1ms), 0);
  link.Ready(At(1ms), 1);
  link.Submit(At(2ms), {500});
  EXPECT_EQ(link.next_timer(), At(10ms));
  EXPECT_THAT(link.Timer(At(10ms) - kTick), IsEmpty());
  EXPECT_THAT(link.Timer(At(10ms)), ElementsAre("abort 2", "abort 3", "abort 1", "send 4"));
  EXPECT_EQ(link.state().ungranted_calls, 1);
  EXPECT_THAT(link.Timer(At(10ms)), IsEmpty());
  for (const uint64_t tag : {1, 2, 3}) link.Finish(At(11ms), tag, CallEnd::kAborted);
  EXPECT_EQ(link.state().blocks, 2);
  link.Finish(At(12ms), 0);
  EXPECT_EQ(link.state().blocks, 1);
}

TEST(GrantsDeadlineTest, ExpiresWhatWaits) {
  LinkSchedule::Options options = GrantsOptions();
  options.budget_bytes = 1;
  ScheduleDriver link(options);
  link.Submit(At(0ms), {1000, 1000}, At(20ms));
  EXPECT_THAT(link.Timer(At(20ms)), ElementsAre("abort 0", "expire 1"));
}

TEST(GrantsDeadlineTest, GrantedCallsOnlyHaveTheTimerOfTheirStalls) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {1000}, At(20ms));
  link.Ready(At(1ms), 0);
  EXPECT_EQ(link.next_timer(), At(1ms + 300ms + kDrainTime));
}

TEST(GrantsSetBudgetTest, LargerBudgetGrantsAndAsksAtOnce) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), Calls(7, 5000));
  link.Ready(At(5ms), 0);
  link.Ready(At(5ms), 1);
  EXPECT_EQ(link.state().grant_window, 5);
  EXPECT_THAT(link.Submit(At(5ms), {1000}), IsEmpty());
  link.Finish(At(5ms), 2);
  EXPECT_THAT(link.SetBudget(At(6ms), 20'000), ElementsAre("grant 1", "send 7"));
}

TEST(GrantsSetBudgetTest, SmallerBudgetOnlyDrains) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {4000, 4000, 4000, 1000});
  link.Ready(At(4ms), 0);
  link.Ready(At(4ms), 1);
  link.Ready(At(4ms), 2);
  EXPECT_THAT(link.SetBudget(At(5ms), 600), IsEmpty());
  EXPECT_EQ(link.state().in_flight_bytes, 8000);
  EXPECT_THAT(link.Submit(At(5ms), {1000}), IsEmpty());
  EXPECT_THAT(link.Finish(At(6ms), 0), IsEmpty());
  EXPECT_THAT(link.Finish(At(7ms), 1), ElementsAre("grant 2"));
  EXPECT_THAT(link.Ready(At(7ms), 3), IsEmpty());
  EXPECT_THAT(link.Finish(At(8ms), 2), ElementsAre("grant 3"));
  EXPECT_THAT(link.Finish(At(9ms), 3), ElementsAre("send 4"));
}

}  // namespace
}  // namespace sluice
