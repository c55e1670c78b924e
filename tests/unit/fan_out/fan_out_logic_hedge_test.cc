#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/fan_out/fan_out_logic.h"
#include "tests/unit/fan_out/fan_out_logic_driver.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using testing::Accept;
using testing::Cancel;
using ::testing::ElementsAre;
using testing::End;
using testing::FanOutLogicDriver;
using ::testing::IsEmpty;
using testing::Send;

FanOutLogic::Options Hedges() {
  return {.hedge_after = absl::Milliseconds(10)};
}

TEST(FanOutLogicHedgeTest, IsDueAfterTheRequestHasLeft) {
  FanOutLogicDriver driver(Hedges(), {{7, 8}});
  driver.Start();
  EXPECT_EQ(driver.logic.NextTimer(), TimePoint::max());
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(100)), IsEmpty()) << "it waits for its turn";
  driver.OnSent(0);
  EXPECT_EQ(driver.logic.NextTimer(), driver.now + milliseconds(10));
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(9)), IsEmpty());
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(1)), ElementsAre(Send(1)));
  EXPECT_TRUE(driver.logic.attempt(1).hedge);
  EXPECT_FALSE(driver.logic.attempt(1).retry);
  EXPECT_EQ(driver.logic.attempt(1).worker, 8u);
  EXPECT_EQ(driver.result().hedges, 1u);
  EXPECT_EQ(driver.result().retries, 0u);
}

TEST(FanOutLogicHedgeTest, WithoutHedgeAfterThereIsNone) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({}, {{7, 8}});
  EXPECT_EQ(driver.logic.NextTimer(), TimePoint::max());
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(1000)), IsEmpty());
}

TEST(FanOutLogicHedgeTest, OfAHedgeThatIsSlowToo) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(Hedges(), {{7, 8, 9}});
  driver.OnTimerAfter(milliseconds(10));
  driver.OnSent(1);
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(10)), ElementsAre(Send(2)));
  driver.OnSent(2);
  EXPECT_EQ(driver.logic.NextTimer(), TimePoint::max()) << "no worker is left";
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(10)), IsEmpty());
  EXPECT_EQ(driver.result().hedges, 2u);
}

TEST(FanOutLogicHedgeTest, OnlyToAWorkerThatWasNotAskedYet) {
  FanOutLogic::Options options = Hedges();
  options.max_attempts = 5;
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(options, {{7}});
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(10)), IsEmpty());
  EXPECT_THAT(driver.OnEnded(0, kDown), ElementsAre(Send(1))) << "while a retry may ask it again";
}

TEST(FanOutLogicHedgeTest, MaxAttemptsIsABound) {
  FanOutLogic::Options options = Hedges();
  options.max_attempts = 2;
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(options, {{7, 8, 9}});
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(10)), ElementsAre(Send(1)));
  driver.OnSent(1);
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(10)), IsEmpty());
  driver.OnEnded(0, kDown);
  EXPECT_THAT(driver.OnEnded(1, kDown), ElementsAre(End()));
}

TEST(FanOutLogicHedgeTest, NotWhereTheResponseIsReady) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(Hedges(), {{7, 8, 9}});
  driver.OnReady(0);
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(10)), IsEmpty());
  EXPECT_EQ(driver.result().hedges_refused, 0u);
}

TEST(FanOutLogicHedgeTest, NotWhereARivalIsReadyButAfterThatHasFailed) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(Hedges(), {{7, 8, 9, 6}});
  driver.OnTimerAfter(milliseconds(10));
  driver.OnSent(1);
  driver.OnReady(0);
  FanOutLogicDriver failed = driver;
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(10)), IsEmpty());
  EXPECT_THAT(failed.OnEnded(0, kInternal), IsEmpty());
  EXPECT_THAT(failed.OnTimerAfter(milliseconds(10)), ElementsAre(Send(2)));
}

TEST(FanOutLogicHedgeTest, OfOneThatWasSentWhileItsRivalWasReadyAndThenFailed) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(Hedges(), {{7, 8, 9}});
  driver.OnTimerAfter(milliseconds(10));
  driver.OnReady(0);
  driver.OnSent(1);
  driver.OnEnded(0, kInternal);
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(10)), ElementsAre(Send(2)));
}

TEST(FanOutLogicHedgeTest, NotWhereAResponseIsKeptOrUnderVerdictOrHasCounted) {
  FanOutLogic::Options options = Hedges();
  options.success_quorum = 2;
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(options, {{0, 8}, {1, 8}, {2, 8}});
  driver.Responds(0);
  driver.OnAccepted(0);
  driver.Responds(1);
  driver.Responds(2);
  EXPECT_EQ(driver.logic.NextTimer() == TimePoint::max(), false) << "ask 1 may be refused";
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(10)), IsEmpty());
}

TEST(FanOutLogicHedgeTest, NotOfAStreamThatHasBegun) {
  FanOutLogic::Options options = Hedges();
  options.server_streaming = true;
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(options, {{7, 8}});
  driver.OnMessage(0);
  driver.OnAccepted(0);
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(10)), IsEmpty());
}

TEST(FanOutLogicHedgeTest, TheBudgetIsABound) {
  AttemptBudget budget;
  while (budget.Spend()) {
  }
  budget.Earn(1);
  FanOutLogic::Options options = Hedges();
  options.hedges = &budget;
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(options, {{0, 8}, {1, 8}, {2, 8}});
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(10)), ElementsAre(Send(3)));
  EXPECT_EQ(driver.result().hedges, 1u);
  EXPECT_EQ(driver.result().hedges_refused, 2u);
  EXPECT_EQ(driver.logic.NextTimer(), TimePoint::max()) << "a refused one is not asked for again";
}

TEST(FanOutLogicHedgeTest, AFailedHedgeLeavesTheFirstOneToRespond) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(Hedges(), {{7, 8}});
  driver.OnTimerAfter(milliseconds(10));
  EXPECT_THAT(driver.OnEnded(1, kDown), IsEmpty()) << "no worker is left";
  driver.Responds(0);
  EXPECT_THAT(driver.OnAccepted(0), ElementsAre(End()));
  EXPECT_EQ(driver.outcome(1), AttemptOutcome::kFailed);
  EXPECT_THAT(driver.result().failures, IsEmpty());
}

TEST(FanOutLogicHedgeTest, AFailedAttemptIsReplacedAtOnceWhileARivalHangs) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(Hedges(), {{7, 8, 9, 6}});
  driver.OnTimerAfter(milliseconds(10));
  EXPECT_THAT(driver.OnEnded(0, kDown), ElementsAre(Send(2)));
  EXPECT_TRUE(driver.logic.attempt(2).retry);
  EXPECT_EQ(driver.logic.attempt(2).worker, 9u);
  FanOutLogicDriver failed = driver;
  driver.Responds(2);
  EXPECT_THAT(driver.OnAccepted(2), ElementsAre(Cancel(1)));
  EXPECT_EQ(driver.result().answered, 1u);
  EXPECT_THAT(failed.OnEnded(2, kDown), ElementsAre(Send(3)));
  EXPECT_THAT(failed.OnEnded(3, kDown), IsEmpty()) << "no worker is left, and the rival is open";
  EXPECT_THAT(failed.OnEnded(1, kDown), ElementsAre(End()));
}

TEST(FanOutLogicHedgeTest, AFailedAttemptWaitsForARivalThatIsReady) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(Hedges(), {{7, 8, 9}});
  driver.OnTimerAfter(milliseconds(10));
  driver.OnReady(1);
  EXPECT_THAT(driver.OnEnded(0, kDown), IsEmpty());
  EXPECT_THAT(driver.OnEnded(1, kDown), ElementsAre(Send(2)));
}

TEST(FanOutLogicHedgeTest, NoWorkerIsAskedAgainWhileARivalIsOpen) {
  FanOutLogic::Options options = Hedges();
  options.max_attempts = 3;
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(options, {{7, 8}});
  driver.OnTimerAfter(milliseconds(10));
  EXPECT_THAT(driver.OnEnded(0, kDown), IsEmpty());
  EXPECT_THAT(driver.OnEnded(1, kDown), ElementsAre(Send(2)));
}

TEST(FanOutLogicHedgeTest, AHedgeDoesNotSpendTheTokenOfARetry) {
  AttemptBudget retries;
  while (retries.Spend()) {
  }
  retries.Earn(1);
  FanOutLogic::Options options = Hedges();
  options.retries = &retries;
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(options, {{7, 8, 9, 6}});
  driver.OnTimerAfter(milliseconds(10));
  EXPECT_THAT(driver.OnEnded(0, kDown), ElementsAre(Send(2)));
  EXPECT_THAT(driver.OnEnded(2, kDown), IsEmpty()) << "no token is left, and the rival is open";
  EXPECT_EQ(driver.result().retries_refused, 1u);
  EXPECT_THAT(driver.result().failures, IsEmpty());
}

TEST(FanOutLogicHedgeTest, AStatusThatIsNotInRetryOnWaitsForTheRival) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(Hedges(), {{7, 8, 9}});
  driver.OnTimerAfter(milliseconds(10));
  EXPECT_THAT(driver.OnEnded(0, kInternal), IsEmpty());
  FanOutLogicDriver other = driver;
  EXPECT_THAT(driver.OnEnded(1, kDown), ElementsAre(Send(2))) << "the last one to fail says whether to retry";
  EXPECT_THAT(other.OnEnded(1, kInternal), ElementsAre(End()));
}

// Regression: the hedge was counted, its primary failed as the last open call, and the group ended before the hedge was
// sent. The fan-out ended OK with 0 responses and 0 failures.
TEST(FanOutLogicHedgeTest, APrimaryThatFailsRightAfterItsHedgeIsDueLeavesAnAttemptThatIsSent) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(Hedges(), {{7, 8}});
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(10)), ElementsAre(Send(1))) << "counted, so it is among the actions";
  EXPECT_EQ(driver.result().hedges, 1u);
  EXPECT_THAT(driver.OnEnded(0, kDown), IsEmpty()) << "it is not over";
  driver.Responds(1);
  EXPECT_THAT(driver.OnAccepted(1), ElementsAre(End()));
  EXPECT_EQ(driver.result().answered, 1u);
  EXPECT_EQ(driver.result().hedges_won, 1u);
}

TEST(FanOutLogicHedgeTest, APrimaryThatFailsRightBeforeItsHedgeIsDueIsRetriedInstead) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(Hedges(), {{7, 8, 9}});
  driver.now += milliseconds(10);
  EXPECT_THAT(driver.OnEnded(0, kDown), ElementsAre(Send(1)));
  EXPECT_THAT(driver.OnTimer(), IsEmpty()) << "whom it would have helped has ended";
  EXPECT_EQ(driver.result().hedges, 0u);
  EXPECT_EQ(driver.result().retries, 1u);
  driver.Responds(1);
  EXPECT_THAT(driver.OnAccepted(1), ElementsAre(End()));
  EXPECT_EQ(driver.result().answered, 1u);
}

TEST(FanOutLogicHedgeTest, AHedgeThatCannotLeaveFailsLikeAnyOther) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(Hedges(), {{7, 8}});
  driver.OnTimerAfter(milliseconds(10));
  EXPECT_THAT(driver.OnEnded(0, kDown), IsEmpty());
  const absl::Status full = absl::ResourceExhaustedError("the queue is full");
  EXPECT_THAT(driver.OnEnded(1, full), ElementsAre(End()));
  EXPECT_EQ(driver.result().status, full) << "never OK without a response";
  EXPECT_EQ(driver.result().failures.size(), 1u);
}

TEST(FanOutLogicHedgeTest, NoneOnceDecided) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(Hedges(), {{7, 8}, {6, 8}});
  EXPECT_THAT(driver.OnEnded(0, kInternal), ElementsAre(Cancel(1)));
  EXPECT_EQ(driver.logic.NextTimer(), TimePoint::max());
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(10)), IsEmpty());
  EXPECT_THAT(driver.OnEnded(1), ElementsAre(End()));
}

TEST(FanOutLogicHedgeTest, OneTimerForAllOfThem) {
  FanOutLogicDriver driver(Hedges(), {{0, 8}, {1, 8}, {2, 8}});
  driver.Start();
  for (size_t attempt : {2, 0, 1}) {
    driver.OnSent(attempt);
    driver.now += milliseconds(2);
  }
  EXPECT_EQ(driver.logic.NextTimer(), driver.now + milliseconds(4));
  driver.Responds(2);
  driver.OnAccepted(2);
  EXPECT_EQ(driver.logic.NextTimer(), driver.now + milliseconds(6));
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(6)), ElementsAre(Send(3)));
  EXPECT_EQ(driver.logic.attempt(3).ask, 0u);
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(2)), ElementsAre(Send(4)));
}

}  // namespace
}  // namespace sluice
