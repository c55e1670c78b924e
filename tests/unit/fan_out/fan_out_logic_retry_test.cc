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

TEST(FanOutLogicRetryTest, TriesTheNextWorkerUntilNoneIsLeft) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({}, {{7, 8, 9}});
  EXPECT_THAT(driver.OnEnded(0, kDown), ElementsAre(Send(1)));
  EXPECT_EQ(driver.logic.attempt(1).worker, 8u);
  EXPECT_TRUE(driver.logic.attempt(1).retry);
  EXPECT_FALSE(driver.logic.attempt(1).hedge);
  EXPECT_EQ(driver.outcome(0), AttemptOutcome::kFailed);
  EXPECT_THAT(driver.OnEnded(1, kDown), ElementsAre(Send(2)));
  const absl::Status last = absl::UnavailableError("the last one");
  EXPECT_THAT(driver.OnEnded(2, last), ElementsAre(End()));
  EXPECT_EQ(driver.result().status, last);
  ASSERT_EQ(driver.result().failures.size(), 1u);
  EXPECT_EQ(driver.result().failures[0].worker, 9u) << "that failed last";
  EXPECT_EQ(driver.result().failures[0].attempt, 2u);
  EXPECT_EQ(driver.result().retries, 2u);
}

TEST(FanOutLogicRetryTest, AResponseOfTheNextWorkerIsNoFailure) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({}, {{7, 8}});
  driver.OnEnded(0, kDown);
  driver.Responds(1);
  EXPECT_THAT(driver.OnAccepted(1), ElementsAre(End()));
  EXPECT_TRUE(driver.result().status.ok());
  EXPECT_THAT(driver.result().failures, IsEmpty());
  EXPECT_EQ(driver.result().hedges_won, 0u);
}

TEST(FanOutLogicRetryTest, AStatusThatIsNotInRetryOnFailsItsAskAtOnce) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({}, {{7, 8}});
  EXPECT_THAT(driver.OnEnded(0, kInternal), ElementsAre(End()));
  EXPECT_EQ(driver.result().retries, 0u);
  FanOutLogicDriver other =
      FanOutLogicDriver::Sent({.retry_on = {absl::StatusCode::kAborted, absl::StatusCode::kInternal}}, {{7, 8}});
  EXPECT_THAT(other.OnEnded(0, kInternal), ElementsAre(Send(1)));
  EXPECT_THAT(FanOutLogicDriver::Sent({.retry_on = {}}, {{7, 8}}).OnEnded(0, kDown), ElementsAre(End()));
}

TEST(FanOutLogicRetryTest, WhatNeverLeftIsRetriedToo) {
  FanOutLogicDriver driver({}, {{7, 8}});
  driver.Start();
  EXPECT_THAT(driver.OnEnded(0, kDown), ElementsAre(Send(1)));
}

TEST(FanOutLogicRetryTest, ARefusedResponseIsAskedOfTheNextWorker) {
  for (const absl::Status& verdict : {kBad, absl::CancelledError("no good either")}) {
    FanOutLogicDriver driver = FanOutLogicDriver::Sent({}, {{7, 8}});
    driver.Responds(0);
    EXPECT_THAT(driver.OnAccepted(0, verdict), ElementsAre(Send(1)));
    EXPECT_EQ(driver.outcome(0), AttemptOutcome::kRefused);
    driver.Responds(1);
    EXPECT_THAT(driver.OnAccepted(1, verdict), ElementsAre(End()));
    EXPECT_EQ(driver.result().status, verdict);
    EXPECT_EQ(driver.result().retries, 1u);
  }
}

TEST(FanOutLogicRetryTest, MaxAttemptsIsABound) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({.max_attempts = 2}, {{7, 8, 9}});
  EXPECT_THAT(driver.OnEnded(0, kDown), ElementsAre(Send(1)));
  EXPECT_THAT(driver.OnEnded(1, kDown), ElementsAre(End()));
}

TEST(FanOutLogicRetryTest, MoreAttemptsThanWorkersBeginAnewWithTheFirst) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({.max_attempts = 4}, {{7, 8}});
  for (size_t attempt : {0, 1, 2}) {
    EXPECT_THAT(driver.OnEnded(attempt, kDown), ElementsAre(Send(attempt + 1)));
  }
  EXPECT_EQ(driver.logic.attempt(2).worker, 7u);
  EXPECT_EQ(driver.logic.attempt(3).worker, 8u);
  EXPECT_THAT(driver.OnEnded(3, kDown), ElementsAre(End()));
}

TEST(FanOutLogicRetryTest, TheBudgetIsABound) {
  AttemptBudget budget;
  while (budget.Spend()) {
  }
  budget.Earn(1);
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({.fail_limit = 2, .retries = &budget}, {{7, 8}, {7, 8}});
  EXPECT_THAT(driver.OnEnded(0, kDown), ElementsAre(Send(2)));
  EXPECT_THAT(driver.OnEnded(1, kDown), IsEmpty());
  EXPECT_EQ(driver.result().retries, 1u);
  EXPECT_EQ(driver.result().retries_refused, 1u);
  EXPECT_EQ(driver.result().failures.size(), 1u);
}

TEST(FanOutLogicRetryTest, NoTokenIsSpentWhereNoWorkerIsLeft) {
  AttemptBudget budget;
  while (budget.Spend()) {
  }
  budget.Earn(1);
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({.retries = &budget}, {{7}});
  driver.OnEnded(0, kDown);
  EXPECT_EQ(driver.result().retries_refused, 0u);
  EXPECT_TRUE(budget.Spend());
}

TEST(FanOutLogicRetryTest, NothingIsRetriedOnceDecided) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({}, {{0, 8}, {1, 8}});
  EXPECT_THAT(driver.OnEnded(0, kInternal), ElementsAre(Cancel(1)));
  EXPECT_THAT(driver.OnEnded(1, kDown), ElementsAre(End()));
  EXPECT_EQ(driver.result().retries, 0u);
  EXPECT_EQ(driver.result().failures.size(), 1u);
}

TEST(FanOutLogicRetryTest, NothingIsRetriedAtTheDeadline) {
  const TimePoint deadline = FanOutLogicDriver({}, {}).now + milliseconds(100);
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({.deadline = deadline}, {{7, 8}});
  driver.now = deadline;
  EXPECT_THAT(driver.OnEnded(0, kDown), ElementsAre(End()));
  EXPECT_EQ(driver.result().retries, 0u);
}

TEST(FanOutLogicRetryTest, ATimeoutCancelsTheAttemptAndTriesTheNextWorker) {
  FanOutLogicDriver driver({.attempt_timeout = absl::Milliseconds(50)}, {{7, 8}});
  driver.Start();
  EXPECT_EQ(driver.logic.NextTimer(), TimePoint::max()) << "it was not sent";
  driver.now += milliseconds(5);
  driver.OnSent(0);
  EXPECT_EQ(driver.logic.NextTimer(), driver.now + milliseconds(50));
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(49)), IsEmpty());
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(1)), ElementsAre(Cancel(0), Send(1)));
  EXPECT_EQ(driver.outcome(0), std::nullopt);
  EXPECT_THAT(driver.OnMessage(0), ElementsAre(Drop(0))) << "too late";
  EXPECT_THAT(driver.OnEnded(0), IsEmpty());
  EXPECT_EQ(driver.outcome(0), AttemptOutcome::kFailed);
  driver.OnSent(1);
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(50)), ElementsAre(Cancel(1)));
  EXPECT_EQ(driver.result().status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(driver.result().failures[0].worker, 8u);
  EXPECT_THAT(driver.OnEnded(1), ElementsAre(End()));
}

TEST(FanOutLogicRetryTest, ATimeoutDropsWhatHasCome) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({.attempt_timeout = absl::Milliseconds(50)}, {{7, 8}});
  driver.OnMessage(0);
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(50)), ElementsAre(Cancel(0), Drop(0), Send(1)));
}

TEST(FanOutLogicRetryTest, AResponseThatWaitsForItsVerdictDoesNotTimeOut) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({.attempt_timeout = absl::Milliseconds(50)}, {{7, 8}});
  driver.Responds(0);
  EXPECT_EQ(driver.logic.NextTimer(), TimePoint::max());
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(50)), IsEmpty());
  EXPECT_THAT(driver.OnAccepted(0), ElementsAre(End()));
}

TEST(FanOutLogicRetryTest, AStreamThatTimesOutDuringTheVerdictWaitsForIt) {
  FanOutLogicDriver driver =
      FanOutLogicDriver::Sent({.server_streaming = true, .attempt_timeout = absl::Milliseconds(50)}, {{7, 8}});
  driver.OnMessage(0);
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(50)), ElementsAre(Cancel(0)));
  EXPECT_THAT(driver.OnMessage(0), ElementsAre(Drop(0)));
  EXPECT_THAT(driver.OnEnded(0), IsEmpty());
  FanOutLogicDriver refused = driver;
  EXPECT_THAT(driver.OnAccepted(0), ElementsAre(End()));
  EXPECT_EQ(driver.result().status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(refused.OnAccepted(0, kBad), ElementsAre(Send(1)));
}

TEST(FanOutLogicRetryTest, ATimeoutIsReplacedAtOnceWhileARivalIsOpen) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(
      {.attempt_timeout = absl::Milliseconds(50), .hedge_after = absl::Milliseconds(10)}, {{7, 8, 9}});
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(10)), ElementsAre(Send(1)));
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(40)), ElementsAre(Cancel(0), Send(2)));
  EXPECT_THAT(driver.Responds(1), ElementsAre(Accept(1)));
}

TEST(FanOutLogicRetryTest, WhenTimeoutsDecideNothingElseIsTried) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent(
      {.attempt_timeout = absl::Milliseconds(10), .hedge_after = absl::Milliseconds(10)}, {{7}, {7, 8}, {7, 8}});
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(10)), ElementsAre(Cancel(0), Cancel(1), Cancel(2)));
  EXPECT_EQ(driver.result().hedges + driver.result().retries, 0u);
}

// The worker is not to blame while its response waits for the link.
TEST(FanOutLogicRetryTest, TheTimeOfAnAttemptStandsStillWhileItsResponseWaitsForTheLink) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({.attempt_timeout = absl::Milliseconds(50)}, {{7, 8}});
  driver.now += milliseconds(30);
  driver.OnReady(0);
  driver.OnHeld(0);
  EXPECT_EQ(driver.logic.NextTimer(), TimePoint::max()) << "there is no deadline";
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(1000)), IsEmpty());
  driver.OnGranted(0);
  EXPECT_EQ(driver.logic.NextTimer(), driver.now + milliseconds(20));
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(19)), IsEmpty());
  FanOutLogicDriver held = driver;
  held.OnHeld(0);
  EXPECT_THAT(held.OnTimerAfter(milliseconds(1000)), IsEmpty()) << "a part has come, and the rest waits";
  held.OnGranted(0);
  EXPECT_EQ(held.logic.NextTimer(), held.now + milliseconds(1));
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(1)), ElementsAre(Cancel(0), Send(1)));
  driver.OnEnded(0, absl::CancelledError(""));
  EXPECT_EQ(driver.outcome(0), AttemptOutcome::kFailed) << "it did not send what was granted";
}

TEST(FanOutLogicRetryTest, TheTimesOfOthersGoOnWhileOneResponseWaitsForTheLink) {
  FanOutLogicDriver driver =
      FanOutLogicDriver::Sent({.attempt_timeout = absl::Milliseconds(50)}, {{7, 9}, {8, 9}, {6, 9}});
  driver.OnReady(0);
  driver.OnHeld(0);
  driver.now += milliseconds(10);
  driver.OnGranted(0);
  driver.OnReady(1);
  EXPECT_EQ(driver.logic.NextTimer(), driver.now + milliseconds(40));
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(40)), ElementsAre(Cancel(1), Send(3), Cancel(2), Send(4)));
  EXPECT_EQ(driver.logic.NextTimer(), driver.now + milliseconds(10));
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(10)), ElementsAre(Cancel(0), Send(5)));
}

}  // namespace
}  // namespace sluice
