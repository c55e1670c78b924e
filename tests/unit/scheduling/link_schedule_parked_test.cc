#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduling/grants_options.h"
#include "tests/unit/scheduling/schedule_driver.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

ScheduleOptions WithoutStalls(SchedulePolicy policy) {
  ScheduleOptions options = OptionsWith(policy);
  options.stall_timeout = absl::InfiniteDuration();
  return options;
}

TEST(ParkTest, ParkedCallBlocksNobody) {
  ScheduleDriver link(WithoutStalls(SchedulePolicy::kRolling));
  EXPECT_THAT(link.SubmitParked(At(0ms), 9000), IsEmpty());
  EXPECT_THAT(link.Submit(At(0ms), {9000}), ElementsAre("send 1"));
  EXPECT_EQ(link.state().waiting_calls, 1);
  EXPECT_EQ(link.state().parked_calls, 1);
  EXPECT_EQ(link.schedule().Demand(At(0ms)).demand_bytes, 9000) << "of the other one";
  EXPECT_THAT(link.Unpark(At(1ms), 0), IsEmpty());
  EXPECT_EQ(link.state().parked_calls, 0);
  EXPECT_THAT(link.Finish(At(2ms), 1), ElementsAre("send 0"));
}

TEST(ParkTest, UnparkedCallGoesToTheEndOfItsBlock) {
  ScheduleDriver link(WithoutStalls(SchedulePolicy::kRolling));
  link.Submit(At(0ms), {5000});
  EXPECT_THAT(link.Add(At(0ms), link.last_block(), 4000), ElementsAre("send 1"));
  link.Add(At(0ms), link.last_block(), 7000);
  link.Submit(At(0ms), {6000});
  EXPECT_THAT(link.Unsent(At(1ms), 1), IsEmpty());
  EXPECT_THAT(link.Unpark(At(1ms), 1), IsEmpty());
  EXPECT_THAT(link.Unpark(At(1ms), 0), IsEmpty()) << "it is out";
  EXPECT_THAT(link.Finish(At(2ms), 0), ElementsAre("send 2"));
  EXPECT_THAT(link.Finish(At(2ms), 2), ElementsAre("send 1", "send 3"));
}

TEST(ParkTest, ParkedCallExpiresAndIsDropped) {
  ScheduleDriver link(WithoutStalls(SchedulePolicy::kGrants));
  link.SubmitParked(At(0ms), 1000, At(10ms));
  link.SubmitParked(At(0ms), 1000);
  EXPECT_EQ(link.next_timer(), At(10ms));
  EXPECT_THAT(link.Timer(At(10ms)), ElementsAre("expire 0"));
  EXPECT_THAT(link.Cancel(At(11ms), link.last_block()), ElementsAre("drop 1"));
  EXPECT_EQ(link.state().blocks, 0);
}

TEST(ParkTest, CountsAgainstTheQueueLimit) {
  ScheduleOptions options = WithoutStalls(SchedulePolicy::kRolling);
  options.queue_limit = 1;
  ScheduleDriver link(options);
  link.SubmitParked(At(0ms), 1000);
  std::vector<Action> actions;
  const CallRequest call;
  EXPECT_TRUE(
      absl::IsResourceExhausted(link.schedule().Submit(At(0ms), {&call, 1}, TimePoint::max(), actions).status()));
}

TEST(UnsentTest, AllOfTheChargeIsReleasedAtOnceAndTheCallIsParked) {
  ScheduleDriver link(WithoutStalls(SchedulePolicy::kRolling));
  link.Submit(At(0ms), {9000, 9000});
  EXPECT_THAT(link.Unsent(At(1ms), 0), ElementsAre("send 1"));
  EXPECT_EQ(link.state().parked_calls, 1);
  EXPECT_EQ(link.state().in_flight_bytes, 9000);
  EXPECT_THAT(link.Unpark(At(2ms), 0), IsEmpty());
  EXPECT_THAT(link.Finish(At(3ms), 1), ElementsAre("send 0"));
  EXPECT_THAT(link.Finish(At(4ms), 0), IsEmpty());
  EXPECT_EQ(link.state().ended_calls, 2);
}

TEST(UnsentTest, InBatchesTheBlockGivesUpItsTurnAndTheCallGetsASlot) {
  ScheduleDriver link(WithoutStalls(SchedulePolicy::kBatches));
  EXPECT_THAT(link.Submit(At(0ms), {5000, 5000}), ElementsAre("send 0", "send 1"));
  EXPECT_THAT(link.Submit(At(0ms), {5000}), IsEmpty());
  EXPECT_THAT(link.Unsent(At(1ms), 0), IsEmpty());
  EXPECT_THAT(link.Finish(At(2ms), 1), ElementsAre("send 2"));
  EXPECT_THAT(link.Unpark(At(3ms), 0), IsEmpty());
  EXPECT_THAT(link.Finish(At(4ms), 2), ElementsAre("send 0"));
}

TEST(UnsentTest, NothingOfTheFirstAttemptIsLeft) {
  ScheduleDriver link(WithoutStalls(SchedulePolicy::kGrants));
  link.Submit(At(0ms), {9000});
  link.Ready(At(20ms), 0, 9000);
  link.Receive(At(20ms), 0, 500);
  EXPECT_THAT(link.Unsent(At(21ms), 0), IsEmpty());
  EXPECT_EQ(link.schedule().Demand(At(21ms)).in_flight_bytes, 0);
  EXPECT_EQ(link.next_timer(), TimePoint::max());
  EXPECT_THAT(link.Unpark(At(22ms), 0), ElementsAre("send 0"));
  EXPECT_THAT(link.Ready(At(42ms), 0, 3000), ElementsAre("grant 0 3000"));
}

TEST(UnsentTest, ExpiresWhereTheDeadlineHasPassed) {
  ScheduleDriver link(WithoutStalls(SchedulePolicy::kRolling));
  link.Submit(At(0ms), {9000}, At(10ms));
  EXPECT_THAT(link.Unsent(At(10ms), 0), ElementsAre("expire 0"));
  EXPECT_EQ(link.state().blocks, 0);
}

TEST(UnsentTest, AbortedCallStillHasToEnd) {
  ScheduleDriver link(WithoutStalls(SchedulePolicy::kRolling));
  link.Submit(At(0ms), {9000});
  link.Cancel(At(1ms), link.last_block());
  EXPECT_THAT(link.Unsent(At(2ms), 0), IsEmpty());
  EXPECT_EQ(link.state().in_flight_bytes, 0);
  EXPECT_EQ(link.state().blocks, 1);
  link.Finish(At(2ms), 0, CallEnd::kAborted);
  EXPECT_EQ(link.state().blocks, 0);
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(UnsentTest, IsIgnoredForWhatIsNotOut) {
  ScheduleDriver link(WithoutStalls(SchedulePolicy::kRolling));
  link.Submit(At(0ms), {9000});
  link.Add(At(0ms), link.last_block(), 9000);
  EXPECT_THAT(link.Unsent(At(1ms), 1), IsEmpty());
  EXPECT_EQ(link.state().parked_calls, 0);
}

class AheadTest : public ::testing::TestWithParam<SchedulePolicy> {
 protected:
  // Returns the words for a request that leaves. They contain the bytes only with grants.
  std::string Sent(uint64_t tag, int64_t bytes) const {
    const std::string words = "send " + std::to_string(tag);
    return GetParam() == SchedulePolicy::kGrants ? words + " " + std::to_string(bytes) : words;
  }
};

TEST_P(AheadTest, LeavesBeforeAllThatWaitsAsSoonAsItFits) {
  ScheduleDriver link(WithoutStalls(GetParam()));
  link.Submit(At(0ms), {3400});
  if (GetParam() == SchedulePolicy::kGrants) link.Ready(At(20ms), 0, 3400);
  ASSERT_GE(link.state().in_flight_bytes, 3000);
  link.SetBudget(At(20ms), 3500);
  link.Submit(At(20ms), {3000});
  EXPECT_THAT(link.SubmitAhead(At(20ms), 1000), IsEmpty());
  EXPECT_THAT(link.SubmitAhead(At(20ms), 100), IsEmpty()) << "it would fit, and does not overtake the other one";
  const ScheduleDriver::Words words = link.Finish(At(21ms), 0);
  ASSERT_GE(words.size(), 2u);
  EXPECT_EQ(words[0], Sent(2, 1000));
  EXPECT_EQ(words[1], Sent(3, 100));
}

// Handshakes with dead workers wait until they stall, and stop no other call in that time.
TEST_P(AheadTest, TakesAThirdOfTheBudgetAndStopsNothingThatFitsBesideIt) {
  ScheduleDriver link(WithoutStalls(GetParam()));
  for (int i = 0; i < 200; ++i) link.SubmitAhead(At(0ms), 1500);
  EXPECT_EQ(link.state().in_flight_bytes, 3000);
  EXPECT_EQ(link.state().waiting_calls, 198);
  EXPECT_THAT(link.Submit(At(0ms), {3000}), ElementsAre("send 200"));
  EXPECT_THAT(link.Finish(At(1ms), 0), ElementsAre(Sent(2, 1500)));
}

TEST_P(AheadTest, GoesOneAtATimeIfItCostsMoreThanAThird) {
  ScheduleDriver link(WithoutStalls(GetParam()));
  EXPECT_THAT(link.SubmitAhead(At(0ms), 6000), ElementsAre(Sent(0, 6000)));
  EXPECT_THAT(link.SubmitAhead(At(0ms), 6000), IsEmpty());
  EXPECT_THAT(link.Submit(At(0ms), {3000}), ElementsAre("send 2"));
  EXPECT_THAT(link.Finish(At(1ms), 0), ElementsAre(Sent(1, 6000)));
}

TEST_P(AheadTest, ComesAfterAllOthersIfItIsARetryAndTakesASixth) {
  ScheduleDriver link(WithoutStalls(GetParam()));
  const auto retry = [&](int64_t bytes) { return link.SubmitAhead(At(0ms), bytes, TimePoint::max(), true); };
  EXPECT_THAT(retry(1000), ElementsAre(Sent(0, 1000)));
  EXPECT_THAT(retry(1000), IsEmpty()) << "a sixth is 1666";
  EXPECT_THAT(link.SubmitAhead(At(0ms), 1000), ElementsAre(Sent(2, 1000)));
  EXPECT_THAT(link.SubmitAhead(At(0ms), 2000), IsEmpty());
  EXPECT_THAT(link.Finish(At(1ms), 0), ElementsAre(Sent(3, 2000)));
  link.Finish(At(1ms), 2);
  EXPECT_THAT(link.Finish(At(1ms), 3), ElementsAre(Sent(1, 1000)));
}

INSTANTIATE_TEST_SUITE_P(, AheadTest,
                         ::testing::Values(SchedulePolicy::kBatches, SchedulePolicy::kRolling, SchedulePolicy::kGrants),
                         [](const auto& info) { return std::string(SchedulePolicyName(info.param)); });

TEST(SubmitAheadTest, ComesBeforeReadyAnswersAndIsNotHeldToTheQueueLimit) {
  ScheduleOptions options = WithoutStalls(SchedulePolicy::kGrants);
  options.queue_limit = 3;
  ScheduleDriver link(options);
  link.Submit(At(0ms), {3300, 3300, 3300});
  for (const uint64_t tag : {0, 1, 2}) link.Ready(At(20ms), tag, 3300);
  ASSERT_EQ(link.state().in_flight_calls, 2);
  link.Submit(At(20ms), {9000, 9000, 9000});
  EXPECT_THAT(link.SubmitAhead(At(20ms), 3000), IsEmpty());
  EXPECT_THAT(link.Receive(At(21ms), 0, 3300), ElementsAre("send 6 3000"));
}

TEST(SubmitAheadTest, SilentHandshakesStall) {
  ScheduleDriver link(GrantsOptions());
  link.SubmitAhead(At(0ms), 6000);
  EXPECT_THAT(link.Timer(At(311ms)), ElementsAre("stall 0"));
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(SubmitAheadTest, RefusesWhatCanNotBeServed) {
  ScheduleDriver link(GrantsOptions());
  std::vector<Action> actions;
  const auto status = [&](const CallRequest& call, TimePoint deadline) {
    return link.schedule().SubmitAhead(At(5ms), call, deadline, actions).status();
  };
  EXPECT_TRUE(absl::IsInvalidArgument(status({.response_bytes = -1}, TimePoint::max())));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status({.response_bytes = 1}, At(5ms))));
  EXPECT_THAT(actions, IsEmpty());
}

TEST(SubmitTest, NamesItsCallsInTheirOrder) {
  for (const SchedulePolicy policy : {SchedulePolicy::kBatches, SchedulePolicy::kGrants}) {
    ScheduleDriver link(WithoutStalls(policy));
    const std::vector<CallRequest> calls(4, {.response_bytes = 5000, .parked = true});
    std::vector<Action> actions;
    std::vector<CallId> ids;
    ASSERT_TRUE(link.schedule().Submit(At(0ms), calls, TimePoint::max(), actions, &ids).ok());
    ASSERT_EQ(ids.size(), 4u);
    link.schedule().CancelCall(At(0ms), ids[2], actions);
    ASSERT_EQ(actions.size(), 1u);
    EXPECT_EQ(actions[0].call, ids[2]);
  }
}

}  // namespace
}  // namespace sluice
