#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduling/grants_options.h"
#include "tests/unit/scheduling/schedule_driver.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ReceivedTest, ChargeFallsByteByByte) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {3300, 3300, 3300});
  for (const uint64_t tag : {0, 1}) link.Ready(At(kThink), tag, 3300);
  EXPECT_THAT(link.Ready(At(kThink), 2, 3300), IsEmpty());
  EXPECT_THAT(link.Receive(At(21ms), 0, 1), IsEmpty());
  EXPECT_EQ(link.state().in_flight_bytes, 6599);
  EXPECT_THAT(link.Receive(At(22ms), 0, 3299), ElementsAre("grant 2 3300"));
  EXPECT_EQ(link.state().in_flight_bytes, 6600);
}

TEST(ReceivedTest, CostsWhatTheFramesOfTheRestCost) {
  ScheduleOptions options = OptionsWith(SchedulePolicy::kRolling);
  options.profile.frame_bytes = 1066;
  ScheduleDriver link(options);
  link.Submit(At(0ms), {2500});
  EXPECT_EQ(link.state().in_flight_bytes, 2500 + 3 * 66);
  link.Receive(At(1ms), 0, 501);
  EXPECT_EQ(link.state().in_flight_bytes, 1999 + 2 * 66);
}

TEST(ReceivedTest, NeverBelowNothingAndNothingForCallsThatAreNotOut) {
  ScheduleDriver link(OptionsWith(SchedulePolicy::kRolling));
  link.Submit(At(0ms), {9000, 9000});
  EXPECT_THAT(link.Receive(At(1ms), 0, 0), IsEmpty());
  EXPECT_THAT(link.Receive(At(1ms), 0, -5), IsEmpty());
  EXPECT_EQ(link.state().in_flight_bytes, 9000);
  EXPECT_THAT(link.Receive(At(1ms), 0, 20'000), ElementsAre("send 1"));
  EXPECT_EQ(link.state().in_flight_bytes, 9000);
  link.Finish(At(2ms), 1);
  link.Receive(At(2ms), 1, 100);
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(ReceivedTest, CountsForAbortedCallsToo) {
  ScheduleDriver link(OptionsWith(SchedulePolicy::kRolling));
  link.Submit(At(0ms), {9000});
  link.CancelCall(At(1ms), 0);
  link.Receive(At(2ms), 0, 4000);
  EXPECT_EQ(link.state().in_flight_bytes, 5000);
  EXPECT_EQ(link.next_timer(), TimePoint::max());
  link.Finish(At(3ms), 0, CallEnd::kAborted);
  EXPECT_EQ(link.state().in_flight_bytes, 5000);
}

class StallInTest : public ::testing::TestWithParam<SchedulePolicy> {};

// The stall timer starts with the request in rolling and batches, and with the grant in grants.
TEST_P(StallInTest, BudgetOfBytesThatDoNotComeGoesToTheOthers) {
  ScheduleDriver link(OptionsWith(GetParam()));
  link.Submit(At(0ms), {9000});
  link.Submit(At(0ms), {9000});
  TimePoint granted = At(0ms);
  if (GetParam() == SchedulePolicy::kGrants) {
    granted = At(kThink);
    link.Ready(granted, 0, 9000);
    link.Ready(granted, 1, 9000);
  }
  const int64_t charged = link.state().in_flight_bytes;
  EXPECT_EQ(link.next_timer(), granted + kStallTime);
  EXPECT_THAT(link.Timer(granted + kStallTime - kTick), IsEmpty());
  const ScheduleDriver::Words words = link.Timer(granted + kStallTime);
  ASSERT_GE(words.size(), 2u);
  EXPECT_EQ(words[0], "stall 0");
  if (GetParam() != SchedulePolicy::kBatches) {
    EXPECT_EQ(link.state().in_flight_bytes, charged) << "of the other one";
    link.Receive(granted + kStallTime, 0, 500);
    EXPECT_EQ(link.state().in_flight_bytes, charged) << "what comes after all is simply received";
  }
}

INSTANTIATE_TEST_SUITE_P(, StallInTest, ::testing::Values(SchedulePolicy::kRolling, SchedulePolicy::kGrants),
                         [](const auto& info) { return std::string(SchedulePolicyName(info.param)); });

TEST(StallTest, BatchesGiveBackTheBudgetAndKeepTheTurn) {
  ScheduleDriver link(OptionsWith(SchedulePolicy::kBatches));
  link.Submit(At(0ms), {9000});
  link.Submit(At(0ms), {9000});
  EXPECT_THAT(link.Timer(At(kStallTime)), ElementsAre("stall 0"));
  EXPECT_EQ(link.state().in_flight_bytes, 0);
  EXPECT_THAT(link.Finish(At(400ms), 0, CallEnd::kAborted), ElementsAre("send 1"));
}

TEST(StallTest, ProgressStartsTheTimeAgain) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000});
  link.Ready(At(kThink), 0, 3000);
  link.Receive(At(200ms), 0, 1000);
  EXPECT_EQ(link.next_timer(), At(200ms + kStallTime));
  EXPECT_THAT(link.Timer(At(200ms + kStallTime)), ElementsAre("stall 0"));
}

TEST(StallTest, MoreGrantsDoNotStartTheTimeAgain) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000, 3300});
  link.Ready(At(kThink), 1, 3300);
  EXPECT_THAT(link.Ready(At(kThink), 0, 50'000), ElementsAre("grant 0 2991"));
  EXPECT_THAT(link.Finish(At(200ms), 1), ElementsAre("grant 0 2991", "grant 0 2991"));
  EXPECT_EQ(link.next_timer(), At(kThink + kStallTime));
}

TEST(StallTest, StalledAnswerIsGrantedMoreWhenWhatWasGrantedHasCome) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {50'000});
  link.Ready(At(kThink), 0, 50'000);
  EXPECT_THAT(link.Timer(At(kThink + kStallTime)), ElementsAre("stall 0"));
  EXPECT_EQ(link.state().in_flight_bytes, 0);
  EXPECT_THAT(link.Receive(At(400ms), 0, 3 * 2991 - 1), IsEmpty());
  EXPECT_THAT(link.Receive(At(400ms), 0, 1), ElementsAre("grant 0 2991", "grant 0 2991", "grant 0 2991"));
  EXPECT_THAT(link.Timer(At(400ms + kStallTime)), ElementsAre("stall 0"));
}

TEST(StallTest, NothingDrainsAfterTheAbortOfAStalledCall) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000});
  link.Ready(At(kThink), 0, 9000);
  link.Timer(At(kThink + kStallTime));
  link.Finish(At(400ms), 0, CallEnd::kAborted);
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(StallTest, EarlyBytesStayChargedWhenTheRestStalls) {
  ScheduleDriver link(GrantsOptions());
  EXPECT_THAT(link.Submit(At(0ms), {1000}), ElementsAre("send 0 1000"));
  EXPECT_THAT(link.Ready(At(1ms), 0, 3000), ElementsAre("grant 0 2000"));
  EXPECT_THAT(link.Timer(At(1ms + kStallTime)), ElementsAre("stall 0"));
  EXPECT_EQ(link.state().in_flight_bytes, 1000);
  link.Receive(At(400ms), 0, 1500);
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(StallTest, AbortedCallDoesNotStall) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000});
  link.Ready(At(kThink), 0, 3000);
  link.CancelCall(At(21ms), 0);
  EXPECT_EQ(link.next_timer(), TimePoint::max());
  EXPECT_EQ(link.state().in_flight_bytes, 3000);
}

TEST(StallTest, ACallLargerThanTheBudgetHasTheTimeThatItNeedsAlone) {
  ScheduleDriver link(OptionsWith(SchedulePolicy::kBatches));
  link.Submit(At(0ms), {500'000});
  EXPECT_EQ(link.next_timer(), At(300ms + 1ms + 500ms));
}

TEST(StragglerTest, LeavesItsRoomToOthersAfterEightDrainTimes) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), std::vector<int64_t>(17, 1000));  // the room for headers is full
  EXPECT_THAT(link.Submit(At(20ms), {1000}), IsEmpty());
  EXPECT_EQ(link.state().straggling_calls, 0);
  EXPECT_EQ(link.next_timer(), At(8 * kDrainTime));
  EXPECT_THAT(link.Timer(At(8 * kDrainTime)), ElementsAre("send 17"));
  EXPECT_EQ(link.state().straggling_calls, 17);
  EXPECT_EQ(link.state().ungranted_calls, 18);
  EXPECT_THAT(link.Ready(At(90ms), 1, 100), ElementsAre("grant 1 100"));
  EXPECT_EQ(link.state().straggling_calls, 16);
  EXPECT_THAT(link.CancelCall(At(90ms), 2), ElementsAre("abort 2"));
  EXPECT_EQ(link.state().straggling_calls, 15);
  link.Finish(At(90ms), 3);
  EXPECT_EQ(link.state().straggling_calls, 14);
}

TEST(StragglerTest, KeepsNoRoomOnceItIsHung) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), std::vector<int64_t>(10, 1000));
  link.Timer(At(8 * kDrainTime));
  EXPECT_EQ(link.schedule().Demand(At(8 * kDrainTime)).in_flight_bytes, 10 * 192);
  link.Timer(At(300ms));
  EXPECT_EQ(link.state().straggling_calls, 10);
  EXPECT_EQ(link.schedule().Demand(At(300ms)).in_flight_bytes, 0);
  EXPECT_THAT(link.Ready(At(301ms), 0, 100), ElementsAre("grant 0 100"));
}

TEST(StragglerTest, HeadersOfAllOfThemTakeAThirdOfTheBudget) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), std::vector<int64_t>(40, 1000));
  for (TimePoint now = At(0ms); link.state().ungranted_calls < 40; now = link.next_timer()) link.Timer(now);
  link.Timer(At(299ms));
  ASSERT_EQ(link.state().straggling_calls, 40);
  EXPECT_EQ(link.schedule().Demand(At(299ms)).in_flight_bytes, 3333) << "40 headers are 7680 bytes";
}

TEST(StragglerTest, ThoseThatAreCancelledLeaveNothingToDrain) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), std::vector<int64_t>(17, 1000));
  link.Timer(At(1000ms));
  ASSERT_EQ(link.state().straggling_calls, 17);
  link.Cancel(At(1000ms), link.last_block());
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(StragglerTest, NeedsNoTimerWhenNothingWaits) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000});
  EXPECT_EQ(link.next_timer(), TimePoint::max());
}

}  // namespace
}  // namespace sluice
