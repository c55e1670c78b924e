#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduling/grants_options.h"
#include "tests/unit/scheduling/schedule_driver.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A driver that has measured that workers are ready after this time.
class Known : public ScheduleDriver {
 public:
  explicit Known(std::chrono::nanoseconds ready_after) : ScheduleDriver(GrantsOptions()) {
    Submit(At(0ms), {9000});
    Ready(At(ready_after), 0, 1000);
    Finish(At(ready_after), 0);
  }
};

TEST(EarlyTest, RequestsLeaveWithTheirGrantsWhereAllFitsAThirdOfTheBudget) {
  ScheduleDriver link(GrantsOptions());
  EXPECT_THAT(link.Submit(At(0ms), {1000, 1000, 1000}), ElementsAre("send 0 1000", "send 1 1000", "send 2 1000"));
  EXPECT_EQ(link.state().in_flight_bytes, 3000);
  EXPECT_EQ(link.state().ungranted_calls, 0);
  EXPECT_THAT(link.Submit(At(1ms), {1000}), ElementsAre("send 3"));
  EXPECT_THAT(link.Ready(At(20ms), 3, 1000), ElementsAre("grant 3 1000"));
  link.Finish(At(21ms), 0);
  EXPECT_THAT(link.Submit(At(21ms), {300}), ElementsAre("send 4 300")) << "3000 and 1000 are not asked for any more";
}

TEST(EarlyTest, WhatWaitsIsAskedForToo) {
  ScheduleOptions options = GrantsOptions();
  options.budget_bytes = 3000;  // a window of 5
  ScheduleDriver link(options);
  EXPECT_EQ(link.Submit(At(0ms), std::vector<int64_t>(6, 1000)),
            (ScheduleDriver::Words{"send 0", "send 1", "send 2", "send 3", "send 4"}));
}

TEST(EarlyTest, WorkersThatAnswerWithinTheTimeOfTheBufferGetAThirdOfTheBudget) {
  Known fast(10ms);
  EXPECT_THAT(fast.Submit(At(30ms), {1600, 1600, 1600}), ElementsAre("send 1 1600", "send 2 1600", "send 3"));
  Known slow(11ms);
  EXPECT_THAT(slow.Submit(At(30ms), {1600, 1600, 1600}), ElementsAre("send 1", "send 2", "send 3"));
}

TEST(EarlyTest, WorkersThatAnswerWithinTwoRoundTripsDoToo) {
  ScheduleOptions options = GrantsOptions();
  options.profile.propagation_rtt = absl::Milliseconds(50);
  ScheduleDriver link(options);
  link.Submit(At(0ms), {9000});
  link.Ready(At(100ms), 0, 1000);
  link.Finish(At(100ms), 0);
  EXPECT_THAT(link.Submit(At(200ms), {3000, 3000}), ElementsAre("send 1 3000", "send 2"));
}

TEST(EarlyTest, OfALargeAnswerOnePartComesWithTheRequest) {
  Known link(1ms);
  EXPECT_THAT(link.Submit(At(30ms), {50'000, 100}), ElementsAre("send 1 2991", "send 2 100"));
  EXPECT_THAT(link.Ready(At(31ms), 1, 50'000), ElementsAre("grant 1 2991"));
}

TEST(EarlyTest, WhatIsGrantedAlreadyNeedsNoGrant) {
  Known link(1ms);
  link.Submit(At(30ms), {1000, 1000});
  EXPECT_THAT(link.Ready(At(31ms), 1, 1000), IsEmpty());
  EXPECT_THAT(link.Receive(At(31ms), 2, 300), IsEmpty());
  EXPECT_THAT(link.Ready(At(31ms), 2, 1200), ElementsAre("grant 2 500")) << "it is larger than expected";
}

// Unused early bytes cannot be revoked, and six such streams would hold a third of the budget for hours.
TEST(EarlyTest, StreamsThatMayIdleHoldNothingBetweenTheirMessages) {
  Known link(1ms);
  link.set_may_idle(true);
  for (uint64_t tag = 1; tag <= 6; ++tag) {
    EXPECT_EQ(link.Submit(At(30ms), {500}), ScheduleDriver::Words{"send " + std::to_string(tag)});
    EXPECT_EQ(link.Ready(At(31ms), tag, 200), ScheduleDriver::Words{"grant " + std::to_string(tag) + " 200"});
    EXPECT_THAT(link.Receive(At(32ms), tag, 200), IsEmpty());
    EXPECT_THAT(link.Ready(At(32ms), tag, 0), IsEmpty());
  }
  EXPECT_EQ(link.state().in_flight_bytes, 0);
  link.set_may_idle(false);
  EXPECT_THAT(link.Submit(At(40ms), {1000}), ElementsAre("send 7 1000"));
}

TEST(EarlyTest, AStreamThatMayIdleStopsNoOtherFromComingEarly) {
  Known link(10ms);
  link.set_may_idle(true);
  EXPECT_THAT(link.Submit(At(30ms), {1600}), ElementsAre("send 1"));
  link.set_may_idle(false);
  EXPECT_THAT(link.Submit(At(30ms), {1600, 1600, 1600}), ElementsAre("send 2 1600", "send 3 1600", "send 4"));
  EXPECT_THAT(link.Receive(At(31ms), 2, 1600), ElementsAre("grant 4 1600")) << "and not the stream";
}

// A call that hangs would otherwise hold the room of early bytes for as long as it lives.
TEST(EarlyTest, BytesThatDoNotComeInTimeLeaveTheirRoomToOthers) {
  Known link(1ms);
  link.Submit(At(30ms), {3000});
  EXPECT_EQ(link.next_timer(), At(30ms) + kStallTime);
  EXPECT_THAT(link.Timer(At(30ms) + kStallTime), IsEmpty()) << "no granted response has stalled";
  EXPECT_EQ(link.state().in_flight_bytes, 0);
  EXPECT_EQ(link.next_timer(), TimePoint::max());
  EXPECT_THAT(link.Receive(At(400ms), 1, 3000), IsEmpty());
  link.Finish(At(400ms), 1);
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(EarlyTest, AWorkerWhoseBytesWereLateGetsNoneUntilItIsReadyInTimeAgain) {
  Known link(1ms);
  link.set_worker(1);
  link.Submit(At(30ms), {3000});
  link.Timer(At(30ms) + kStallTime);
  EXPECT_THAT(link.Submit(At(400ms), {500}), ElementsAre("send 2"));
  link.set_worker(2);
  EXPECT_THAT(link.Submit(At(400ms), {500}), ElementsAre("send 3 500")) << "others get theirs";
  link.Finish(At(400ms), 3);
  link.set_worker(1);
  uint64_t tag = 2;
  ScheduleDriver::Words words{"send 2"};
  for (; words == ScheduleDriver::Words{"send " + std::to_string(tag)} && tag < 400; ++tag) {
    link.Ready(At(401ms), tag, 500);
    link.Receive(At(401ms), tag, 500);
    link.Finish(At(401ms), tag);
    if (tag == 2) ++tag;  // call 3 has ended
    words = link.Submit(At(401ms), {500});
  }
  EXPECT_EQ(tag, 259) << "256 responses, with the call of another worker";
  EXPECT_EQ(words, ScheduleDriver::Words{"send 259 500"});
}

TEST(EarlyTest, NothingComesEarlyWhileABudgetOfBytesIsLate) {
  Known link(1ms);
  for (uint32_t worker = 1; worker <= 4; ++worker) {
    const auto now = worker * 1000ms;
    link.set_worker(worker);
    EXPECT_EQ(link.Submit(At(now), {3000}).back(), "send " + std::to_string(worker) + " 3000");
    link.Timer(At(now) + kStallTime);
  }
  link.set_worker(5);
  EXPECT_THAT(link.Submit(At(10'000ms), {500}), ElementsAre("send 5"));
}

TEST(EarlyTest, OnlyDataOrTheEndFreesBytes) {
  Known link(1ms);
  link.Submit(At(30ms), {3000});
  EXPECT_THAT(link.Submit(At(30ms), {3000}), ElementsAre("send 2"));
  link.Receive(At(31ms), 1, 400);
  EXPECT_EQ(link.state().in_flight_bytes, 2600);
  link.Ready(At(31ms), 1, 0);  // smaller than expected
  EXPECT_EQ(link.state().in_flight_bytes, 2600);
  EXPECT_THAT(link.Finish(At(32ms), 1), ElementsAre("grant 2 3000"));
  EXPECT_EQ(link.state().in_flight_bytes, 3000);
}

TEST(EarlyTest, RequestsThatAreOutGetWhatTheShareHasRoomForOldestFirst) {
  Known link(1ms);
  EXPECT_THAT(link.Submit(At(30ms), {3000, 2000, 1000}), ElementsAre("send 1 3000", "send 2", "send 3"));
  EXPECT_THAT(link.Receive(At(31ms), 1, 1000), IsEmpty()) << "no smaller one overtakes the oldest";
  EXPECT_THAT(link.Receive(At(32ms), 1, 1000), ElementsAre("grant 2 2000"));
  EXPECT_THAT(link.Receive(At(33ms), 1, 1000), ElementsAre("grant 3 1000"));
  EXPECT_EQ(link.state().ungranted_calls, 0);
  EXPECT_THAT(link.Ready(At(34ms), 2, 2500), ElementsAre("grant 2 500")) << "it is larger than expected";
}

TEST(EarlyTest, StragglersGetNothingBeforeTheyAreReady) {
  Known link(1ms);
  EXPECT_THAT(link.Submit(At(30ms), {3000, 1000}), ElementsAre("send 1 3000", "send 2"));
  EXPECT_THAT(link.Receive(At(30ms) + 8 * kDrainTime, 1, 3000), IsEmpty());
  EXPECT_THAT(link.Ready(At(130ms), 2, 1000), ElementsAre("grant 2 1000"));
}

TEST(EarlyTest, WorkersThatThinkGetNothingBeforeTheyAreReady) {
  Known link(50ms);
  EXPECT_THAT(link.Submit(At(60ms), {3000, 1000}), ElementsAre("send 1", "send 2"));
  EXPECT_THAT(link.Ready(At(110ms), 1, 3000), ElementsAre("grant 1 3000"));
  EXPECT_THAT(link.Receive(At(111ms), 1, 3000), IsEmpty());
}

TEST(EarlyTest, AbortedBytesDrain) {
  Known link(1ms);
  link.Submit(At(30ms), {3000});
  EXPECT_THAT(link.CancelCall(At(40ms), 1), ElementsAre("abort 1"));
  link.Finish(At(40ms), 1, CallEnd::kAborted);
  EXPECT_EQ(link.state().in_flight_bytes, 3000);
  EXPECT_EQ(link.next_timer(), At(40ms) + kDrainTime);
  link.Timer(At(40ms) + kDrainTime);
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(EarlyTest, WaitsWhileReadyAnswersDo) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {3300, 3300, 3300});
  for (const uint64_t tag : {0, 1, 2}) link.Ready(At(1ms), tag, 3300);
  ASSERT_EQ(link.state().in_flight_calls, 2);
  EXPECT_THAT(link.Submit(At(2ms), {100}), ElementsAre("send 3"));
  EXPECT_THAT(link.Finish(At(3ms), 1), ElementsAre("grant 2 3300", "grant 3 100"));
  EXPECT_THAT(link.Submit(At(4ms), {100}), ElementsAre("send 4 100"));
}

}  // namespace
}  // namespace sluice
