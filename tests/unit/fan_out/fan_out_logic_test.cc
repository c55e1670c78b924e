#include "lib/fan_out/fan_out_logic.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/fan_out/fan_out_logic_driver.h"

namespace sluice {
namespace {

using testing::Accept;
using testing::Cancel;
using testing::Drop;
using ::testing::ElementsAre;
using testing::End;
using testing::FanOutLogicDriver;
using ::testing::IsEmpty;
using testing::Send;

TEST(FanOutLogicTest, AsksTheFirstWorkerOfEachAsk) {
  FanOutLogicDriver driver({}, {{5, 6}, {7}});
  EXPECT_THAT(driver.Start(), ElementsAre(Send(0), Send(1)));
  EXPECT_EQ(driver.logic.attempt(0).worker, 5u);
  EXPECT_EQ(driver.logic.attempt(1).worker, 7u);
  EXPECT_EQ(driver.logic.attempt(1).ask, 1u);
  EXPECT_FALSE(driver.logic.attempt(0).retry || driver.logic.attempt(0).hedge);
}

TEST(FanOutLogicTest, EndsFromStartWhereNothingIsAsked) {
  FanOutLogicDriver driver({}, {});
  EXPECT_THAT(driver.Start(), ElementsAre(End()));
  EXPECT_TRUE(driver.result().status.ok());
  EXPECT_EQ(driver.result().asked, 0u);
}

TEST(FanOutLogicTest, AcceptsAResponseWhenItsAttemptHasEndedWell) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({}, {{0}});
  EXPECT_THAT(driver.OnReady(0), IsEmpty());
  EXPECT_THAT(driver.OnMessage(0), IsEmpty()) << "its status may say that it is worth nothing";
  EXPECT_THAT(driver.OnEnded(0), ElementsAre(Accept(0)));
  EXPECT_EQ(driver.outcome(0), std::nullopt) << "nobody has taken it yet";
  EXPECT_FALSE(driver.logic.decided());
  EXPECT_THAT(driver.OnAccepted(0), ElementsAre(End()));
  EXPECT_EQ(driver.outcome(0), AttemptOutcome::kResponded);
  EXPECT_TRUE(driver.logic.decided());
  EXPECT_TRUE(driver.result().status.ok());
  EXPECT_EQ(driver.result().answered, 1u);
}

TEST(FanOutLogicTest, AMessageBeforeABadStatusIsDropped) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({}, {{0}});
  driver.OnMessage(0);
  EXPECT_THAT(driver.OnEnded(0, kInternal), ElementsAre(Drop(0), End()));
  EXPECT_EQ(driver.result().status, kInternal);
}

TEST(FanOutLogicTest, WaitsForAllAsks) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({.fail_limit = 1}, {{0}, {1}});
  driver.Responds(1);
  EXPECT_THAT(driver.OnAccepted(1), IsEmpty());
  EXPECT_THAT(driver.OnEnded(0, kInternal), ElementsAre(End()));
  EXPECT_TRUE(driver.result().status.ok());
  EXPECT_EQ(driver.result().decisive, std::nullopt);
  EXPECT_EQ(driver.result().answered, 1u);
  ASSERT_EQ(driver.result().failures.size(), 1u);
  EXPECT_EQ(driver.result().failures[0].status, kInternal);
}

TEST(FanOutLogicTest, OneFailureTooManyIsDecisiveAndCancelsTheRestOnce) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({.fail_limit = 1}, {{7}, {8}, {9}, {6}});
  driver.OnMessage(3);
  driver.OnEnded(0, absl::AbortedError("tolerated"));
  EXPECT_THAT(driver.OnEnded(1, kInternal), ElementsAre(Cancel(2), Cancel(3), Drop(3)));
  EXPECT_TRUE(driver.logic.decided());
  EXPECT_THAT(driver.Cancel(), IsEmpty()) << "it is decided";
  EXPECT_THAT(driver.OnMessage(2), ElementsAre(Drop(2))) << "it crossed with the cancellation";
  EXPECT_THAT(driver.OnEnded(2), IsEmpty());
  EXPECT_THAT(driver.OnEnded(3, absl::CancelledError("")), ElementsAre(End()));
  EXPECT_EQ(driver.result().status, kInternal);
  ASSERT_TRUE(driver.result().decisive.has_value());
  EXPECT_EQ(driver.result().decisive->ask, 1u);
  EXPECT_EQ(driver.result().decisive->worker, 8u);
  EXPECT_EQ(driver.result().failures.size(), 2u);
  EXPECT_EQ(driver.result().cancelled, 2u);
  EXPECT_EQ(driver.outcome(1), AttemptOutcome::kFailed);
  EXPECT_EQ(driver.outcome(2), AttemptOutcome::kNotNeeded);
  EXPECT_EQ(driver.outcome(3), AttemptOutcome::kNotNeeded);
}

TEST(FanOutLogicTest, AQuorumOutOfReachFailsAtOnce) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({.fail_limit = 3, .success_quorum = 2}, {{0}, {1}, {2}});
  EXPECT_THAT(driver.OnEnded(0, kInternal), IsEmpty());
  EXPECT_THAT(driver.OnEnded(1, kInternal), ElementsAre(Cancel(2)));
}

TEST(FanOutLogicTest, TheFailLimitHoldsBesideAQuorumThatCanStillCome) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({.fail_limit = 0, .success_quorum = 1}, {{0}, {1}, {2}});
  EXPECT_THAT(driver.OnEnded(0, kInternal), ElementsAre(Cancel(1), Cancel(2)));
}

TEST(FanOutLogicTest, FinishesWithTheQuorum) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({.success_quorum = 2}, {{0}, {1}, {2}});
  driver.Responds(0);
  EXPECT_THAT(driver.OnAccepted(0), IsEmpty());
  driver.Responds(2);
  EXPECT_THAT(driver.OnAccepted(2), ElementsAre(Cancel(1)));
  EXPECT_THAT(driver.OnEnded(1, kInternal), ElementsAre(End()));
  EXPECT_TRUE(driver.result().status.ok());
  EXPECT_EQ(driver.result().answered, 2u);
  EXPECT_EQ(driver.result().cancelled, 1u);
  EXPECT_EQ(driver.outcome(1), AttemptOutcome::kNotNeeded);
}

TEST(FanOutLogicTest, NeverAcceptsMoreThanTheQuorum) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({.success_quorum = 2}, {{0}, {1}, {2}, {3}});
  EXPECT_THAT(driver.Responds(0), ElementsAre(Accept(0)));
  EXPECT_THAT(driver.Responds(1), ElementsAre(Accept(1)));
  EXPECT_THAT(driver.Responds(2), IsEmpty()) << "two may do";
  driver.OnAccepted(1);
  EXPECT_THAT(driver.OnAccepted(0), ElementsAre(Drop(2), Cancel(3)));
  EXPECT_THAT(driver.OnMessage(3), ElementsAre(Drop(3)));
  EXPECT_THAT(driver.OnEnded(3), ElementsAre(End()));
  EXPECT_EQ(driver.outcome(2), AttemptOutcome::kNotNeeded);
  EXPECT_EQ(driver.outcome(3), AttemptOutcome::kNotNeeded);
}

TEST(FanOutLogicTest, ARefusalLetsTheNextResponseInThatTheQuorumKept) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({.fail_limit = 4, .success_quorum = 1}, {{0}, {1}, {2}, {3}});
  driver.Responds(3);
  EXPECT_THAT(driver.Responds(2), IsEmpty());
  EXPECT_THAT(driver.Responds(0), IsEmpty());
  EXPECT_THAT(driver.OnAccepted(3, kInternal), ElementsAre(Accept(2))) << "the first to be here";
  EXPECT_THAT(driver.OnAccepted(2, kInternal), ElementsAre(Accept(0)));
  EXPECT_THAT(driver.OnAccepted(0), ElementsAre(Cancel(1)));
  EXPECT_EQ(driver.result().failures.size(), 2u);
  EXPECT_EQ(driver.outcome(3), AttemptOutcome::kRefused);
}

TEST(FanOutLogicTest, AnEmptyResponseWaitsForTheQuorumToo) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({.fail_limit = 4, .success_quorum = 1}, {{0}, {1}, {2}});
  EXPECT_THAT(driver.Responds(0), ElementsAre(Accept(0)));
  EXPECT_THAT(driver.OnEnded(1), IsEmpty());
  EXPECT_THAT(driver.OnAccepted(0, kInternal), ElementsAre(Cancel(2))) << "the empty one is enough";
  EXPECT_EQ(driver.result().answered, 1u);
}

TEST(FanOutLogicTest, StreamsAreAcceptedBeyondTheQuorumUntilItIsReached) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({.success_quorum = 1, .server_streaming = true}, {{0}, {1}});
  EXPECT_THAT(driver.OnMessage(0), ElementsAre(Accept(0)));
  driver.OnAccepted(0);
  EXPECT_THAT(driver.OnMessage(1), ElementsAre(Accept(1)));
  driver.OnEnded(1);
  EXPECT_THAT(driver.OnAccepted(1), ElementsAre(Cancel(0)));
  EXPECT_THAT(driver.OnMessage(0), ElementsAre(Drop(0)));
  EXPECT_THAT(driver.OnEnded(0), ElementsAre(End()));
  EXPECT_EQ(driver.result().answered, 1u);
  EXPECT_EQ(driver.result().cancelled, 1u);
}

TEST(FanOutLogicTest, EndsAfterTheLastVerdictWhenAllAttemptsHaveEnded) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({.fail_limit = 1}, {{0}, {1}});
  driver.Responds(0);
  EXPECT_THAT(driver.OnEnded(1, kInternal), IsEmpty());
  EXPECT_THAT(driver.OnAccepted(0), ElementsAre(End()));
}

TEST(FanOutLogicTest, AwaitsVerdictsWhenNoOtherResponseHasToCome) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({.fail_limit = 1}, {{0}, {1}, {2}});
  driver.Responds(0);
  EXPECT_FALSE(driver.logic.AwaitsVerdicts());
  driver.OnEnded(1, kInternal);
  EXPECT_FALSE(driver.logic.AwaitsVerdicts());
  driver.Responds(2);
  EXPECT_TRUE(driver.logic.AwaitsVerdicts());
}

TEST(FanOutLogicTest, AwaitsVerdictsWhenTheyMakeTheQuorum) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({.success_quorum = 2}, {{0}, {1}, {2}});
  driver.Responds(0);
  driver.OnAccepted(0);
  EXPECT_FALSE(driver.logic.AwaitsVerdicts());
  driver.Responds(1);
  EXPECT_TRUE(driver.logic.AwaitsVerdicts());
}

TEST(FanOutLogicTest, ALargeFanOutIsCheap) {
  constexpr size_t kAsks = 10'000;
  FanOutLogic::Options options{.success_quorum = kAsks, .hedge_after = absl::Milliseconds(10)};
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(options, FanOutLogicDriver::Workers(kAsks, {0, 1, 2}));
  driver.OnTimerAfter(std::chrono::milliseconds(10));
  EXPECT_EQ(driver.logic.attempts(), 2 * kAsks);
  // A scan of all asks for each event would take 10^8 steps here.
  for (size_t attempt = 2 * kAsks; attempt-- > kAsks;) {
    EXPECT_EQ(driver.Responds(attempt).size(), 1u);
    driver.OnAccepted(attempt);
  }
  for (size_t attempt = 0; attempt < kAsks; ++attempt) driver.OnEnded(attempt, absl::CancelledError(""));
  EXPECT_EQ(driver.result().hedges_won, kAsks);
  EXPECT_TRUE(driver.result().status.ok());
}

}  // namespace
}  // namespace sluice
