// Rivals for one ask, streams, and refusals.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/fan_out/fan_out_logic.h"
#include "tests/unit/fan_out/fan_out_logic_driver.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using testing::Accept;
using testing::Cancel;
using testing::Drop;
using ::testing::ElementsAre;
using testing::End;
using testing::FanOutLogicDriver;
using ::testing::IsEmpty;
using testing::Send;

// One ask of workers 7, 8 and 9: attempt 0 is its first attempt, and attempt 1 a hedge.
FanOutLogicDriver Rivals(FanOutLogic::Options options) {
  options.hedge_after = absl::Milliseconds(10);
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(options, {{7, 8, 9}});
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(10)), ElementsAre(Send(1)));
  driver.OnSent(1);
  return driver;
}

FanOutLogic::Options Streams() {
  return {.server_streaming = true};
}

TEST(FanOutLogicClaimTest, TheFirstResponseThatIsAcceptedClaimsAndItsRivalIsCancelled) {
  FanOutLogicDriver driver = Rivals({});
  EXPECT_THAT(driver.Responds(1), ElementsAre(Accept(1)));
  EXPECT_THAT(driver.OnAccepted(1), ElementsAre(Cancel(0)));
  EXPECT_THAT(driver.OnEnded(0, kBad), ElementsAre(End()));
  EXPECT_EQ(driver.outcome(0), AttemptOutcome::kNotNeeded);
  EXPECT_EQ(driver.outcome(1), AttemptOutcome::kResponded);
  EXPECT_EQ(driver.result().hedges_won, 1u);
  EXPECT_THAT(driver.result().failures, IsEmpty());
}

TEST(FanOutLogicClaimTest, APrimaryThatWinsLeavesTheHedgeLost) {
  FanOutLogicDriver driver = Rivals({});
  driver.Responds(0);
  EXPECT_THAT(driver.OnAccepted(0), ElementsAre(Cancel(1)));
  driver.OnEnded(1, kDown);
  EXPECT_EQ(driver.result().hedges, 1u);
  EXPECT_EQ(driver.result().hedges_won, 0u);
}

TEST(FanOutLogicClaimTest, ARivalsResponseIsKeptUntilTheVerdictAndDroppedAfterIt) {
  FanOutLogicDriver driver = Rivals({});
  driver.Responds(1);
  EXPECT_THAT(driver.Responds(0), IsEmpty());
  EXPECT_THAT(driver.OnAccepted(1), ElementsAre(Drop(0), End()));
  EXPECT_EQ(driver.outcome(0), AttemptOutcome::kNotNeeded) << "it is neither refused nor corrupt";
}

TEST(FanOutLogicClaimTest, AfterARefusalTheRivalsResponseIsAccepted) {
  FanOutLogicDriver driver = Rivals({});
  driver.Responds(1);
  driver.Responds(0);
  EXPECT_THAT(driver.OnAccepted(1, kBad), ElementsAre(Accept(0)));
  EXPECT_THAT(driver.OnAccepted(0), ElementsAre(End()));
  EXPECT_EQ(driver.outcome(1), AttemptOutcome::kRefused);
  EXPECT_EQ(driver.result().retries, 0u);
  EXPECT_EQ(driver.result().hedges_won, 0u);
}

TEST(FanOutLogicClaimTest, AfterARefusalTheNextWorkerIsAskedAndARivalThatIsOpenMayStillRespond) {
  FanOutLogicDriver driver = Rivals({});
  driver.Responds(1);
  EXPECT_THAT(driver.OnAccepted(1, kBad), ElementsAre(Send(2)));
  EXPECT_THAT(driver.Responds(0), ElementsAre(Accept(0)));
}

TEST(FanOutLogicClaimTest, ARivalThatFailsDuringTheVerdictLeavesARefusalToTheNextWorker) {
  FanOutLogicDriver driver = Rivals({});
  driver.Responds(1);
  EXPECT_THAT(driver.OnEnded(0, kDown), IsEmpty()) << "the response may be accepted";
  EXPECT_THAT(driver.OnAccepted(1, kBad), ElementsAre(Send(2)));
  EXPECT_EQ(driver.logic.attempt(2).worker, 9u);
}

TEST(FanOutLogicClaimTest, MessagesOfAStreamAreAcceptedAsTheyCome) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(Streams(), {{0}});
  EXPECT_THAT(driver.OnMessage(0), ElementsAre(Accept(0)));
  EXPECT_THAT(driver.OnMessage(0), ElementsAre(Accept(0)));
  EXPECT_THAT(driver.OnAccepted(0), IsEmpty());
  EXPECT_THAT(driver.OnMessage(0), ElementsAre(Accept(0)));
  EXPECT_THAT(driver.OnAccepted(0), IsEmpty());
  EXPECT_THAT(driver.OnEnded(0), IsEmpty()) << "the last verdict is missing";
  EXPECT_THAT(driver.OnAccepted(0), ElementsAre(End()));
  EXPECT_EQ(driver.result().answered, 1u);
}

TEST(FanOutLogicClaimTest, AStreamRespondsWithItsEndWhenAllIsAccepted) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(Streams(), {{0}});
  driver.OnMessage(0);
  EXPECT_THAT(driver.OnAccepted(0), IsEmpty());
  EXPECT_THAT(driver.OnEnded(0), ElementsAre(End()));
  EXPECT_EQ(driver.outcome(0), AttemptOutcome::kResponded);
}

TEST(FanOutLogicClaimTest, AnEmptyStreamClaimsAndResponds) {
  FanOutLogicDriver driver = Rivals(Streams());
  EXPECT_THAT(driver.OnEnded(1), ElementsAre(Cancel(0)));
  EXPECT_EQ(driver.result().answered, 1u);
  EXPECT_EQ(driver.outcome(1), AttemptOutcome::kResponded);
}

TEST(FanOutLogicClaimTest, AnEmptyStreamDoesNotClaimBeforeTheVerdictOnARival) {
  FanOutLogicDriver driver = Rivals(Streams());
  driver.OnMessage(0);
  EXPECT_THAT(driver.OnEnded(1), IsEmpty());
  FanOutLogicDriver refused = driver;
  EXPECT_THAT(driver.OnAccepted(0), IsEmpty()) << "the claim";
  EXPECT_EQ(driver.outcome(1), AttemptOutcome::kNotNeeded);
  EXPECT_THAT(refused.OnAccepted(0, kBad), ElementsAre(Cancel(0)));
  EXPECT_EQ(refused.outcome(1), AttemptOutcome::kResponded);
}

TEST(FanOutLogicClaimTest, TheFirstMessageOfAStreamWinsTheHedge) {
  FanOutLogicDriver driver = Rivals(Streams());
  EXPECT_THAT(driver.OnMessage(1), ElementsAre(Accept(1)));
  EXPECT_THAT(driver.OnMessage(0), IsEmpty());
  EXPECT_THAT(driver.OnMessage(0), IsEmpty());
  EXPECT_THAT(driver.OnAccepted(1), ElementsAre(Cancel(0), Drop(0, 2)));
  EXPECT_THAT(driver.OnMessage(0), ElementsAre(Drop(0)));
  EXPECT_FALSE(driver.logic.decided());
  driver.OnEnded(0, absl::CancelledError(""));
  EXPECT_THAT(driver.OnEnded(1), ElementsAre(End()));
  EXPECT_EQ(driver.result().hedges_won, 1u);
}

TEST(FanOutLogicClaimTest, ARefusedFirstMessageOfAStreamLetsTheRivalsMessagesIn) {
  FanOutLogicDriver driver = Rivals(Streams());
  driver.OnMessage(1);
  driver.OnMessage(0);
  driver.OnMessage(0);
  EXPECT_THAT(driver.OnAccepted(1, kBad), ElementsAre(Cancel(1), Accept(0, 2)));
  EXPECT_THAT(driver.OnMessage(1), ElementsAre(Drop(1)));
  EXPECT_THAT(driver.OnMessage(0), ElementsAre(Accept(0)));
}

TEST(FanOutLogicClaimTest, OneAttemptAtATimeIsUnderVerdict) {
  FanOutLogicDriver driver = Rivals(Streams());
  driver.OnMessage(1);
  driver.OnMessage(1);
  driver.OnMessage(0);
  EXPECT_THAT(driver.OnAccepted(1, kBad), ElementsAre(Cancel(1))) << "its second one is still with whoever asked";
  EXPECT_THAT(driver.OnAccepted(1, absl::CancelledError("skipped")), ElementsAre(Accept(0)));
}

TEST(FanOutLogicClaimTest, ARefusalInTheMiddleOfAStreamFailsItsAsk) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(Streams(), {{7, 8}});
  driver.OnMessage(0);
  driver.OnAccepted(0);
  driver.OnMessage(0);
  EXPECT_THAT(driver.OnAccepted(0, kBad), ElementsAre(Cancel(0)));
  EXPECT_THAT(driver.OnEnded(0), ElementsAre(End())) << "its good status comes too late";
  EXPECT_EQ(driver.result().status, kBad);
  EXPECT_EQ(driver.outcome(0), AttemptOutcome::kRefused);
}

TEST(FanOutLogicClaimTest, AStreamThatFailsAfterAnAcceptedMessageIsNotReplaced) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(Streams(), {{7, 8}});
  driver.OnMessage(0);
  driver.OnAccepted(0);
  EXPECT_THAT(driver.OnEnded(0, kDown), ElementsAre(End()));
  EXPECT_EQ(driver.result().status, kDown);
  EXPECT_EQ(driver.result().retries, 0u);
}

TEST(FanOutLogicClaimTest, AStreamThatFailsBeforeTheFirstVerdictWaitsForIt) {
  FanOutLogicDriver accepted = FanOutLogicDriver::Sent(Streams(), {{7, 8}});
  accepted.OnMessage(0);
  EXPECT_THAT(accepted.OnEnded(0, kDown), IsEmpty());
  FanOutLogicDriver refused = accepted;
  EXPECT_THAT(accepted.OnAccepted(0), ElementsAre(End()));
  EXPECT_EQ(accepted.result().status, kDown);
  EXPECT_EQ(accepted.outcome(0), AttemptOutcome::kFailed);
  EXPECT_THAT(refused.OnAccepted(0, kBad), ElementsAre(Send(1))) << "nobody has seen a message";
  EXPECT_EQ(refused.outcome(0), AttemptOutcome::kRefused);
}

// The rival's messages would be added to an accepted message.
TEST(FanOutLogicClaimTest, ARivalDoesNotMixWithAStreamThatFailedDuringTheVerdict) {
  FanOutLogicDriver driver = Rivals(Streams());
  driver.OnMessage(0);
  driver.OnMessage(1);
  driver.OnEnded(1);
  EXPECT_THAT(driver.OnEnded(0, kDown), IsEmpty());
  EXPECT_THAT(driver.OnAccepted(0), ElementsAre(Drop(1), End()));
  EXPECT_EQ(driver.result().status, kDown);
}

TEST(FanOutLogicClaimTest, WhatIsReplaceableReleasesItsClaim) {
  FanOutLogic::Options options = Streams();
  options.replaceable = true;
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(options, {{7, 8}});
  driver.OnMessage(0);
  driver.OnAccepted(0);
  EXPECT_THAT(driver.OnEnded(0, kDown), ElementsAre(Send(1)));
  EXPECT_THAT(driver.OnMessage(1), ElementsAre(Accept(1)));
  driver.OnAccepted(1);
  EXPECT_THAT(driver.OnEnded(1), ElementsAre(End()));
  EXPECT_TRUE(driver.result().status.ok());
  EXPECT_EQ(driver.outcome(0), AttemptOutcome::kFailed);
}

TEST(FanOutLogicClaimTest, TheSuccessorOfAReplaceableOneWaitsForTheVerdictsOfItsPredecessor) {
  FanOutLogic::Options options = Streams();
  options.replaceable = true;
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(options, {{7, 8}});
  driver.OnMessage(0);
  EXPECT_THAT(driver.OnEnded(0, kDown), ElementsAre(Send(1)));
  EXPECT_THAT(driver.OnMessage(1), IsEmpty());
  EXPECT_THAT(driver.OnAccepted(0), ElementsAre(Accept(1)));
}

TEST(FanOutLogicClaimTest, AReplaceableStreamMayBeRefusedInTheMiddle) {
  FanOutLogic::Options options = Streams();
  options.replaceable = true;
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(options, {{7, 8}});
  driver.OnMessage(0);
  driver.OnAccepted(0);
  driver.OnMessage(0);
  EXPECT_THAT(driver.OnAccepted(0, kBad), ElementsAre(Cancel(0), Send(1)));
}

}  // namespace
}  // namespace sluice
