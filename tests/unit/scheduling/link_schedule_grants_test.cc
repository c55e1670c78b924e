#include "sluice/plan.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduling/grants_options.h"
#include "tests/unit/scheduling/schedule_driver.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int64_t> Calls(size_t count, int64_t size) {
  return std::vector<int64_t>(count, size);
}

TEST(GrantsTest, RequestsLeaveBeforeTheirAnswersFit) {
  ScheduleDriver link(GrantsOptions());
  EXPECT_EQ(link.Submit(At(0ms), Calls(20, 9000)).size(), 17);
  EXPECT_EQ(link.state().ungranted_calls, 17);
  EXPECT_EQ(link.state().waiting_calls, 3);
  EXPECT_EQ(link.state().in_flight_calls, 0);
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(GrantsTest, AnswerIsGrantedWhenItIsReadyAndFits) {
  ScheduleOptions options = GrantsOptions();
  options.budget_bytes = 8000;
  ScheduleDriver link(options);
  EXPECT_THAT(link.Submit(At(0ms), {2600, 2600, 2600, 2600}), ElementsAre("send 0", "send 1", "send 2", "send 3"));
  EXPECT_THAT(link.Ready(At(kThink), 1, 2600), ElementsAre("grant 1 2600"));
  EXPECT_EQ(link.state().in_flight_bytes, 2600);
  EXPECT_EQ(link.state().in_flight_calls, 1);
  EXPECT_THAT(link.Ready(At(kThink), 0, 2500), ElementsAre("grant 0 2500"));
  EXPECT_THAT(link.Ready(At(kThink), 2, 2600), IsEmpty());
  EXPECT_EQ(link.state().ungranted_calls, 2);
  EXPECT_THAT(link.Receive(At(23ms), 1, 2010), ElementsAre("grant 2 2600"));
  EXPECT_EQ(link.state().in_flight_bytes, 590 + 2500 + 2600);
  link.Finish(At(24ms), 1);
  link.Finish(At(25ms), 0);
  EXPECT_THAT(link.Ready(At(25ms), 3, 100), ElementsAre("grant 3 100"));
  link.Finish(At(26ms), 2);
  link.Finish(At(26ms), 3);
  EXPECT_EQ(link.state().ended_calls, 4);
  EXPECT_EQ(link.state().blocks, 0);
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

// The application is slow, but the worker is not.
TEST(GrantsTest, AMessageWithoutRoomAtItsCallerIsNotReady) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {2000, 2000});
  EXPECT_THAT(link.Ready(At(kThink), 0, 0, 2000), IsEmpty());
  EXPECT_EQ(link.state().ready_bytes, 0);
  EXPECT_EQ(link.state().ungranted_calls, 1);
  EXPECT_THAT(link.Ready(At(1000ms), 0, 2000), ElementsAre("grant 0 2000"));
}

TEST(GrantsTest, AMessageWithoutRoomIsNotGrantedEarly) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000, 9000});
  EXPECT_THAT(link.Ready(At(5ms), 0, 0, 9000), ElementsAre("grant 1 2991")) << "workers are ready at once";
  EXPECT_THAT(link.Finish(At(6ms), 1), IsEmpty());
  EXPECT_THAT(link.Ready(At(7ms), 0, 9000), ElementsAre("grant 0 2991", "grant 0 2991", "grant 0 3018"));
}

TEST(GrantsTest, ATimeWithoutRoomForAMessageDoesNotHideASlowWorker) {
  ScheduleDriver link(GrantsOptions());
  link.set_worker(1);
  link.Submit(At(0ms), {4000});
  EXPECT_THAT(link.Ready(At(kThink), 0, 0, 4000), IsEmpty());
  EXPECT_THAT(link.Ready(At(1000ms), 0, 4000), ElementsAre("grant 0 2991", "grant 0 1009"));
  link.set_worker(2);
  link.Submit(At(1000ms), Calls(21, 1000));
  for (uint64_t tag = 1; tag <= 21; ++tag) {
    link.Ready(At(1020ms + tag * 1ms), tag, 1000);
    link.Receive(At(1020ms + tag * 1ms), tag, 1000);
    link.Finish(At(1020ms + tag * 1ms), tag);
  }
  link.set_worker(1);
  link.Receive(At(1045ms), 0, 4000);
  EXPECT_TRUE(link.load().slow) << "the link has received two budgets, in more than two round trips to the worker";
}

TEST(GrantsTest, OldestBlockFirstThenInTheOrderOfReadiness) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {3300, 3300, 3300, 1000, 1000});
  link.Submit(At(0ms), {1000});
  for (const uint64_t tag : {0, 1, 2}) link.Ready(At(kThink), tag, 3300);
  EXPECT_EQ(link.state().in_flight_bytes, 6600);
  link.Ready(At(21ms), 5, 1000);
  link.Ready(At(22ms), 4, 1000);
  link.Ready(At(23ms), 3, 1000);
  EXPECT_THAT(link.Finish(At(24ms), 0), ElementsAre("grant 2 3300", "grant 4 1000", "grant 3 1000"));
  EXPECT_THAT(link.Finish(At(24ms), 1), ElementsAre("grant 5 1000"));
}

TEST(GrantsTest, ReadyAnswerThatDoesNotFitIsNotOvertaken) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {3300, 3300, 3300, 100});
  link.Ready(At(kThink), 0, 3300);
  EXPECT_THAT(link.Ready(At(kThink), 1, 3300), ElementsAre("grant 1 3300"));
  EXPECT_THAT(link.Ready(At(kThink), 2, 3300), IsEmpty());
  EXPECT_THAT(link.Ready(At(kThink), 3, 100), IsEmpty());
  EXPECT_THAT(link.Receive(At(21ms), 0, 3300), ElementsAre("grant 2 3300", "grant 3 100"));
}

TEST(GrantsTest, CallThatIsNotReadyHoldsNoBudgetAndBlocksNobody) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000, 9000});
  link.Submit(At(0ms), {3000});
  EXPECT_THAT(link.Ready(At(kThink), 2, 3000), ElementsAre("grant 2 3000"));
  EXPECT_THAT(link.Finish(At(25ms), 2), IsEmpty());
  EXPECT_THAT(link.Ready(At(26ms), 1, 3000), ElementsAre("grant 1 3000"));
}

TEST(GrantsTest, AnswersComeBeforeRequests) {
  ScheduleOptions options = GrantsOptions();
  options.budget_bytes = 1000;  // one request at a time
  ScheduleDriver link(options);
  EXPECT_THAT(link.Submit(At(0ms), {300, 300, 300, 300}), ElementsAre("send 0"));
  EXPECT_THAT(link.Ready(At(kThink), 0, 300), ElementsAre("grant 0 300", "send 1"));
}

TEST(GrantsTest, RequestLeavesOnlyWithRoomForItsHeaders) {
  for (const int64_t budget : {3192, 3191}) {
    ScheduleDriver link(GrantsOptions());
    link.Submit(At(0ms), {9000});
    EXPECT_THAT(link.Ready(At(kThink), 0, 3000), ElementsAre("grant 0 3000"));
    link.SetBudget(At(kThink), budget);
    EXPECT_EQ(link.Submit(At(kThink), {9000}).size(), budget == 3192 ? 1 : 0) << budget;
  }
}

TEST(GrantsTest, SmallestBudgetServesOnePacketAfterTheOther) {
  ScheduleOptions options = GrantsOptions();
  options.budget_bytes = 1;
  ScheduleDriver link(options);
  EXPECT_THAT(link.Submit(At(0ms), {1000, 1000}), ElementsAre("send 0"));
  EXPECT_THAT(link.Ready(At(1ms), 0, 1000), ElementsAre("grant 0 991"));
  EXPECT_THAT(link.Receive(At(2ms), 0, 990), IsEmpty());
  EXPECT_THAT(link.Receive(At(2ms), 0, 1), ElementsAre("grant 0 9"));
  EXPECT_THAT(link.Finish(At(2ms), 0), ElementsAre("send 1"));
  EXPECT_THAT(link.Ready(At(3ms), 1, 0), IsEmpty());
  link.Finish(At(3ms), 1);
  EXPECT_EQ(link.state().blocks, 0);
}

TEST(GrantsTest, PacketBufferKeepsAFrameForEachHeader) {
  ScheduleOptions options = GrantsOptions();
  options.profile.buffer_bytes = 0;
  options.profile.buffer_packets = 12;
  ScheduleDriver link(options);
  EXPECT_EQ(link.Submit(At(0ms), Calls(20, 1000)).size(), 4);
}

TEST(GrantsReadyTest, SaysTheSizeWhateverWasExpected) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000, 10});
  EXPECT_THAT(link.Ready(At(kThink), 0, 3000), ElementsAre("grant 0 3000"));
  EXPECT_EQ(link.state().in_flight_bytes, 3000);
  EXPECT_THAT(link.Ready(At(kThink), 1, 3300), ElementsAre("grant 1 3300"));
}

TEST(GrantsReadyTest, EmptyAnswerNeedsNoGrant) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000});
  EXPECT_THAT(link.Ready(At(kThink), 0, 0), IsEmpty());
  EXPECT_EQ(link.state().ungranted_calls, 0);
  EXPECT_EQ(link.state().in_flight_calls, 1);
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(GrantsReadyTest, SizeOutOfBoundsIsTheNearestBound) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000, 9000});
  EXPECT_THAT(link.Ready(At(kThink), 0, -1), IsEmpty());
  link.Finish(At(kThink), 0);
  link.Ready(At(kThink), 1, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(link.schedule().Demand(At(kThink)).demand_bytes, kMaxResponseBytes);
}

// Five of the six bytes of a stream's first window are for the prefix. The sixth must be open again at the end;
// otherwise some servers never send their trailers.
TEST(GrantsReadyTest, ByteThatCameWithoutAGrantIsMadeUpFor) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000, 9000});
  EXPECT_THAT(link.Receive(At(kThink), 0, 1), IsEmpty());
  EXPECT_THAT(link.Ready(At(kThink), 0, 2999), ElementsAre("grant 0 3000"));
  EXPECT_EQ(link.state().in_flight_bytes, 2999);
  EXPECT_THAT(link.Ready(At(kThink), 1, 1), ElementsAre("grant 1 1"));
  EXPECT_THAT(link.Receive(At(kThink), 1, 1), IsEmpty());
  EXPECT_THAT(link.Receive(At(kThink), 1, 1), ElementsAre("grant 1 1"));
}

TEST(GrantsReadyTest, OnlyForWhatIsOut) {
  ScheduleOptions options = GrantsOptions();
  options.budget_bytes = 600;  // a window of one
  ScheduleDriver link(options);
  link.Submit(At(0ms), {600, 600});
  std::vector<Action> actions;
  link.schedule().OnReady(At(1ms), {.slot = 1, .generation = 0}, 100, actions);  // the call still waits
  link.schedule().OnReady(At(1ms), {.slot = 9, .generation = 0}, 100, actions);
  EXPECT_THAT(actions, IsEmpty());
  EXPECT_THAT(link.Ready(At(1ms), 0, 200), ElementsAre("grant 0 200", "send 1"));
  link.Finish(At(3ms), 0);
  EXPECT_THAT(link.Ready(At(3ms), 0, 100), IsEmpty());
  EXPECT_EQ(link.state().ungranted_calls, 1);
}

TEST(GrantsFinishTest, ErrorBeforeTheGrantEndsTheCall) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {3300, 3300, 3300, 9000});
  for (const uint64_t tag : {0, 1, 2}) link.Ready(At(kThink), tag, 3300);
  EXPECT_THAT(link.Finish(At(21ms), 2), IsEmpty());  // ready
  EXPECT_THAT(link.Finish(At(21ms), 3), IsEmpty());  // sent
  EXPECT_EQ(link.state().ungranted_calls, 0);
  EXPECT_EQ(link.state().in_flight_bytes, 6600);
  link.Finish(At(22ms), 0);
  link.Finish(At(22ms), 1);
  EXPECT_EQ(link.state().blocks, 0);
}

TEST(GrantsFinishTest, HeadersOfALostRequestMayStillCome) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000, 1000});
  link.Finish(At(1ms), 0, CallEnd::kAborted);
  EXPECT_EQ(link.state().in_flight_bytes, 192);
  link.Timer(At(1ms) + kDrainTime);
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(GrantsFinishTest, OfAnAbortedAnswerWhatWasGrantedAndHasNotComeDrains) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {200'000});
  EXPECT_THAT(link.Ready(At(kThink), 0, 200'000), ElementsAre("grant 0 2991", "grant 0 2991", "grant 0 2991"));
  EXPECT_THAT(link.Receive(At(21ms), 0, 2000), IsEmpty());
  EXPECT_THAT(link.Finish(At(22ms), 0, CallEnd::kAborted), IsEmpty());
  EXPECT_EQ(link.state().in_flight_bytes, 3 * 2991 - 2000);
  link.Timer(At(22ms) + kDrainTime);
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(GrantsAddTest, CallOfABlockThatIsAllOutLeavesAtOnceAndKeepsItsPlace) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000, 9000});
  const BlockId first = link.last_block();
  link.Submit(At(0ms), {1000});
  EXPECT_THAT(link.Add(At(0ms), first, 1000), ElementsAre("send 3"));
  link.Ready(At(kThink), 0, 3300);
  link.Ready(At(kThink), 1, 3300);
  link.Ready(At(21ms), 2, 3000);
  link.Ready(At(22ms), 3, 3000);
  EXPECT_THAT(link.Finish(At(23ms), 0), ElementsAre("grant 3 3000"));
  EXPECT_THAT(link.Finish(At(23ms), 1), ElementsAre("grant 2 3000"));
}

TEST(GrantsDeadlineTest, AbortsWhatIsNotGranted) {
  ScheduleOptions options = GrantsOptions();
  options.budget_bytes = 3 * 192 * 3;  // three requests
  ScheduleDriver link(options);
  link.Submit(At(0ms), {1000, 1000, 1000, 1000, 1000}, At(40ms));
  link.Ready(At(kThink), 0, 500);
  link.Ready(At(kThink), 1, 500);
  link.Ready(At(kThink), 2, 500);
  ASSERT_EQ(link.state().in_flight_calls, 2);
  link.Submit(At(21ms), {500});
  EXPECT_EQ(link.next_timer(), At(40ms));
  EXPECT_THAT(link.Timer(At(40ms) - kTick), IsEmpty());
  EXPECT_THAT(link.Timer(At(40ms)), ElementsAre("abort 3", "abort 4", "abort 2"));
  EXPECT_EQ(link.state().ungranted_calls, 1);
  EXPECT_THAT(link.Timer(At(40ms)), IsEmpty());
  for (const uint64_t tag : {2, 3, 4}) link.Finish(At(41ms), tag, CallEnd::kAborted);
  EXPECT_EQ(link.state().blocks, 2);
  link.Finish(At(42ms), 0);
  link.Finish(At(42ms), 1);
  EXPECT_EQ(link.state().blocks, 1);
}

TEST(GrantsDeadlineTest, ExpiresWhatWaits) {
  ScheduleOptions options = GrantsOptions();
  options.budget_bytes = 1;
  ScheduleDriver link(options);
  link.Submit(At(0ms), {1000, 1000}, At(20ms));
  EXPECT_THAT(link.Timer(At(20ms)), ElementsAre("abort 0", "expire 1"));
}

TEST(GrantsDeadlineTest, GrantedCallsOnlyHaveTheTimerOfTheirStalls) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000}, At(30ms));
  link.Ready(At(1ms), 0, 1000);
  EXPECT_EQ(link.next_timer(), At(1ms + 300ms + kDrainTime));
}

TEST(GrantsSetBudgetTest, LargerBudgetGrantsAndAsksAtOnce) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {3300, 3300, 3300});
  for (const uint64_t tag : {0, 1, 2}) link.Ready(At(kThink), tag, 3300);
  ASSERT_EQ(link.state().in_flight_calls, 2);
  link.Submit(At(kThink), Calls(30, 3300));
  const int64_t waiting = link.state().waiting_calls;
  ASSERT_GT(waiting, 0);
  const ScheduleDriver::Words words = link.SetBudget(At(21ms), 20'000);
  ASSERT_FALSE(words.empty());
  EXPECT_EQ(words.front(), "grant 2 3300");
}

TEST(GrantsSetBudgetTest, SmallerBudgetOnlyDrains) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {3000, 3000, 3000, 1000});
  link.Ready(At(kThink), 0, 3000);
  link.Ready(At(kThink), 1, 3000);
  EXPECT_THAT(link.SetBudget(At(21ms), 600), IsEmpty());
  EXPECT_EQ(link.state().in_flight_bytes, 6000);
  EXPECT_THAT(link.Submit(At(21ms), {1000}), IsEmpty());
  EXPECT_THAT(link.Ready(At(21ms), 2, 200), IsEmpty());
  EXPECT_THAT(link.Finish(At(22ms), 0), IsEmpty());
  EXPECT_THAT(link.Receive(At(23ms), 1, 2700), IsEmpty());
  EXPECT_THAT(link.Receive(At(23ms), 1, 100), ElementsAre("grant 2 200"));
}

}  // namespace
}  // namespace sluice
