// Fan-outs that end before they are complete: at their deadline, or by cancellation.
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
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Send;

// Sets a deadline of 100 ms from the start.
FanOutLogicDriver WithDeadline(FanOutLogic::Options options, FanOutLogicDriver::Workers workers) {
  options.deadline = FanOutLogicDriver({}, {}).now + milliseconds(100);
  return FanOutLogicDriver::Sent(options, std::move(workers));
}

TEST(FanOutLogicDeadlineTest, WhoHasNotRespondedHasFailed) {
  FanOutLogicDriver driver = WithDeadline({.fail_limit = 1}, {{7}, {8}});
  EXPECT_EQ(driver.logic.NextTimer(), driver.now + milliseconds(100));
  driver.Responds(0);
  driver.OnAccepted(0);
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(99)), IsEmpty());
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(1)), ElementsAre(Cancel(1)));
  EXPECT_EQ(driver.logic.NextTimer(), TimePoint::max());
  EXPECT_THAT(driver.OnEnded(1), ElementsAre(End()));
  EXPECT_TRUE(driver.result().status.ok()) << "one may fail";
  ASSERT_EQ(driver.result().failures.size(), 1u);
  EXPECT_EQ(driver.result().failures[0].worker, 8u);
  EXPECT_EQ(driver.result().failures[0].attempt, 1u);
  EXPECT_EQ(driver.result().failures[0].status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(driver.outcome(1), AttemptOutcome::kFailed);
}

TEST(FanOutLogicDeadlineTest, OneTooManyIsDeadlineExceededAndEachIsAFailure) {
  FanOutLogicDriver driver = WithDeadline({.fail_limit = 1}, {{5}, {6}, {7}});
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(100)), ElementsAre(Cancel(0), Cancel(1), Cancel(2)));
  EXPECT_EQ(driver.result().status.code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(driver.result().decisive.has_value());
  EXPECT_EQ(driver.result().decisive->worker, 6u);
  EXPECT_EQ(driver.result().failures.size(), 3u);
}

TEST(FanOutLogicDeadlineTest, TheFailureSaysHowFarItCame) {
  FanOutLogicDriver driver = WithDeadline({}, {{5}, {6}});
  driver.OnReady(1);
  driver.OnTimerAfter(milliseconds(100));
  EXPECT_THAT(std::string(driver.result().failures[0].status.message()), HasSubstr("not ready"));
  EXPECT_THAT(std::string(driver.result().failures[1].status.message()), HasSubstr("was ready"));
}

// The link was full; the worker is not to blame.
TEST(FanOutLogicDeadlineTest, WhatWasNotSentIsAFailureOfItsAskAndNotOfItsWorker) {
  FanOutLogicDriver driver({.deadline = FanOutLogicDriver({}, {}).now + milliseconds(100)}, {{7}});
  driver.Start();
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(100)), ElementsAre(Cancel(0)));
  EXPECT_THAT(driver.OnEnded(0, absl::CancelledError("")), ElementsAre(End()));
  EXPECT_THAT(std::string(driver.result().status.message()), HasSubstr("not sent"));
  EXPECT_EQ(driver.outcome(0), AttemptOutcome::kExpired);
}

TEST(FanOutLogicDeadlineTest, AResponseThatWaitsForTheLinkIsAFailureOfItsAskAndNotOfItsWorker) {
  FanOutLogicDriver driver = WithDeadline({}, {{7}});
  driver.now += milliseconds(60);
  driver.OnReady(0);
  driver.OnHeld(0);
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(40)), ElementsAre(Cancel(0)));
  EXPECT_THAT(driver.OnEnded(0, absl::CancelledError("")), ElementsAre(End()));
  EXPECT_EQ(driver.outcome(0), AttemptOutcome::kExpired);
  EXPECT_EQ(driver.result().status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(driver.result().status.message()),
              HasSubstr("the response was ready and waited for the link's grant for 40ms"));
}

// Large responses take turns, so a few of them have always just been granted a part.
TEST(FanOutLogicDeadlineTest, AResponseThatWaitedForLongerThanItsWorkerTookIsNotTheWorkersFailure) {
  FanOutLogicDriver driver = WithDeadline({.fail_limit = 2}, {{7}, {8}});
  driver.now += milliseconds(20);
  for (size_t attempt : {0, 1}) {
    driver.OnReady(attempt);
    driver.OnHeld(attempt);
  }
  driver.now += milliseconds(10);
  driver.OnGranted(1);
  driver.now += milliseconds(60);
  driver.OnGranted(0);
  driver.OnTimerAfter(milliseconds(10));
  for (size_t attempt : {0, 1}) driver.OnEnded(attempt, absl::CancelledError(""));
  EXPECT_EQ(driver.outcome(0), AttemptOutcome::kExpired);
  EXPECT_EQ(driver.outcome(1), AttemptOutcome::kFailed) << "granted bytes have not come for 70 ms";
  EXPECT_THAT(std::string(driver.result().failures[0].status.message()), HasSubstr("grant for 70ms"));
  EXPECT_THAT(std::string(driver.result().failures[1].status.message()), HasSubstr("not all of it came in time"));
}

// The worker has the same deadline, and the schedule checks the deadline, too.
TEST(FanOutLogicDeadlineTest, WhoeverNoticesTheDeadlineFirstTheBlameIsTheSame) {
  const absl::Status late = absl::DeadlineExceededError("says the worker");
  FanOutLogicDriver driver({.deadline = FanOutLogicDriver({}, {}).now + milliseconds(100), .fail_limit = 3},
                           {{6}, {7}, {8}});
  driver.Start();
  for (size_t attempt : {1, 2}) driver.OnSent(attempt);
  driver.OnReady(1);
  driver.OnHeld(1);
  driver.now += milliseconds(100);
  for (size_t attempt : {0, 1, 2}) driver.OnEnded(attempt, late);
  EXPECT_EQ(driver.outcome(0), AttemptOutcome::kExpired) << "not sent";
  EXPECT_EQ(driver.outcome(1), AttemptOutcome::kExpired) << "it waited for a grant";
  EXPECT_EQ(driver.outcome(2), AttemptOutcome::kFailed);
  EXPECT_THAT(std::string(driver.result().failures[0].status.message()), HasSubstr("not sent"));
  EXPECT_THAT(std::string(driver.result().failures[1].status.message()), HasSubstr("the link's grant for 100ms"));
  EXPECT_EQ(driver.result().failures[2].status, late);
}

TEST(FanOutLogicDeadlineTest, AWorkersOwnLimitBeforeTheDeadlineIsItsFailure) {
  FanOutLogicDriver driver = WithDeadline({}, {{7}});
  driver.OnReady(0);
  driver.OnHeld(0);
  driver.OnEnded(0, absl::DeadlineExceededError("after 5 ms"));
  EXPECT_EQ(driver.outcome(0), AttemptOutcome::kFailed);
}

TEST(FanOutLogicDeadlineTest, AStreamUnderVerdictThatWaitsForTheLinkIsNotItsWorkersFailure) {
  FanOutLogicDriver driver = WithDeadline({.server_streaming = true}, {{7}});
  driver.OnMessage(0);
  driver.OnHeld(0);
  driver.now += milliseconds(100);
  driver.OnEnded(0, absl::DeadlineExceededError("says the worker"));
  driver.OnAccepted(0);
  EXPECT_EQ(driver.outcome(0), AttemptOutcome::kExpired);
}

TEST(FanOutLogicDeadlineTest, NothingIsSentAfterIt) {
  FanOutLogicDriver driver({.deadline = TimePoint()}, {{7}, {8}});
  EXPECT_THAT(driver.Start(), ElementsAre(End()));
  EXPECT_EQ(driver.result().status.code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_EQ(driver.result().failures.size(), 2u);
  EXPECT_EQ(driver.result().failures[1].worker, 8u);
  EXPECT_EQ(driver.result().failures[1].attempt, std::nullopt);
  EXPECT_EQ(driver.logic.attempts(), 0u);
}

TEST(FanOutLogicDeadlineTest, AResponseUnderVerdictWasInTime) {
  FanOutLogicDriver driver = WithDeadline({.fail_limit = 2}, {{7, 9}, {8}});
  driver.Responds(0);
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(100)), ElementsAre(Cancel(1)));
  driver.OnEnded(1);
  FanOutLogicDriver refused = driver;
  EXPECT_THAT(driver.OnAccepted(0), ElementsAre(End()));
  EXPECT_EQ(driver.result().answered, 1u);
  EXPECT_THAT(refused.OnAccepted(0, kBad), ElementsAre(End())) << "there is no time for a retry";
  EXPECT_EQ(refused.result().failures.size(), 2u);
}

TEST(FanOutLogicDeadlineTest, AResponseThatTheQuorumKeptWasInTime) {
  FanOutLogicDriver driver = WithDeadline({.fail_limit = 2, .success_quorum = 1}, {{7}, {8}, {9}});
  driver.Responds(0);
  driver.Responds(1);
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(100)), ElementsAre(Cancel(2)));
  EXPECT_THAT(driver.OnAccepted(0, kBad), ElementsAre(Accept(1)));
  driver.OnAccepted(1);
  EXPECT_TRUE(driver.result().status.ok());
}

TEST(FanOutLogicDeadlineTest, AStreamInTheMiddleHasFailed) {
  FanOutLogicDriver driver = WithDeadline({.server_streaming = true}, {{7}});
  driver.OnMessage(0);
  driver.OnMessage(0);
  driver.OnAccepted(0);
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(100)), ElementsAre(Cancel(0)));
  EXPECT_THAT(driver.OnEnded(0), IsEmpty()) << "one verdict is missing";
  EXPECT_THAT(driver.OnAccepted(0), ElementsAre(End()));
  EXPECT_EQ(driver.result().failures.size(), 1u);
  EXPECT_EQ(driver.result().answered, 0u);
}

TEST(FanOutLogicDeadlineTest, AWholeStreamDoesNotMixWithARivalUnderVerdict) {
  FanOutLogicDriver driver = WithDeadline({.server_streaming = true, .hedge_after = absl::Milliseconds(10)}, {{7, 8}});
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(10)), ElementsAre(Send(1)));
  driver.OnMessage(0);
  driver.OnMessage(1);
  driver.OnEnded(1);
  EXPECT_THAT(driver.OnTimerAfter(milliseconds(90)), ElementsAre(Cancel(0)));
  driver.OnEnded(0, absl::CancelledError(""));
  FanOutLogicDriver refused = driver;
  EXPECT_THAT(driver.OnAccepted(0), ElementsAre(Drop(1), End()));
  EXPECT_EQ(driver.result().status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(refused.OnAccepted(0, kBad), ElementsAre(Accept(1)));
  EXPECT_THAT(refused.OnAccepted(1), ElementsAre(End()));
  EXPECT_TRUE(refused.result().status.ok());
}

TEST(FanOutLogicCancelTest, EndsWithItsStatusAndCancelsEachOpenAttemptOnce) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({.fail_limit = 3}, {{0}, {1}, {2}});
  driver.Responds(0);
  driver.OnAccepted(0);
  const absl::Status why = absl::CancelledError("the FanOut was destroyed");
  EXPECT_THAT(driver.Cancel(why), ElementsAre(Cancel(1), Cancel(2)));
  EXPECT_THAT(driver.Cancel(), IsEmpty());
  driver.OnEnded(1, absl::CancelledError(""));
  EXPECT_THAT(driver.OnEnded(2, absl::UnavailableError("")), ElementsAre(End()));
  EXPECT_EQ(driver.result().status, why);
  EXPECT_EQ(driver.result().decisive, std::nullopt);
  EXPECT_EQ(driver.result().answered, 1u);
  EXPECT_EQ(driver.result().cancelled, 2u);
  EXPECT_THAT(driver.result().failures, IsEmpty()) << "cancelled, not failed, though as many may fail";
}

TEST(FanOutLogicCancelTest, BeforeTheFirstAttemptsHaveLeft) {
  FanOutLogicDriver driver({}, {{0, 8}, {1}});
  driver.Start();
  EXPECT_THAT(driver.Cancel(), ElementsAre(Cancel(0), Cancel(1)));
  EXPECT_THAT(driver.OnEnded(1, absl::UnavailableError("")), IsEmpty());
  EXPECT_THAT(driver.OnEnded(0, absl::UnavailableError("")), ElementsAre(End()));
}

TEST(FanOutLogicCancelTest, BeforeStart) {
  FanOutLogicDriver driver({}, {{0}, {1}});
  EXPECT_THAT(driver.Cancel(), IsEmpty());
  EXPECT_THAT(driver.Start(), ElementsAre(End()));
  EXPECT_EQ(driver.result().cancelled, 2u);
  EXPECT_EQ(driver.result().status.code(), absl::StatusCode::kCancelled);
}

TEST(FanOutLogicCancelTest, AfterTheEndChangesNothing) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({}, {{0}});
  driver.Responds(0);
  driver.OnAccepted(0);
  EXPECT_THAT(driver.Cancel(), IsEmpty());
  EXPECT_TRUE(driver.result().status.ok());
}

TEST(FanOutLogicCancelTest, FromTheVerdictOnAResponseLetsThatOneCount) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({}, {{0}, {1}, {2}});
  driver.Responds(0);
  driver.Responds(1);
  EXPECT_THAT(driver.Cancel(), ElementsAre(Cancel(2)));
  EXPECT_THAT(driver.OnAccepted(0), IsEmpty()) << "it was merged while the fan-out was cancelled";
  EXPECT_THAT(driver.OnAccepted(1, absl::CancelledError("skipped")), IsEmpty());
  EXPECT_THAT(driver.OnEnded(2), ElementsAre(End()));
  EXPECT_EQ(driver.result().answered, 1u);
  EXPECT_EQ(driver.result().cancelled, 2u);
  EXPECT_EQ(driver.outcome(0), AttemptOutcome::kResponded);
  EXPECT_EQ(driver.outcome(1), AttemptOutcome::kNotNeeded);
}

TEST(FanOutLogicCancelTest, AStreamInTheMiddleIsCancelledWhateverItsStatus) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({.server_streaming = true}, {{0}});
  driver.OnMessage(0);
  driver.OnAccepted(0);
  EXPECT_THAT(driver.Cancel(), ElementsAre(Cancel(0)));
  EXPECT_THAT(driver.OnMessage(0), ElementsAre(Drop(0)));
  EXPECT_THAT(driver.OnEnded(0), ElementsAre(End()));
  EXPECT_EQ(driver.result().answered, 0u);
  EXPECT_EQ(driver.result().cancelled, 1u);
  EXPECT_EQ(driver.outcome(0), AttemptOutcome::kNotNeeded);
}

TEST(FanOutLogicCancelTest, ARefusalAfterItFailsNothing) {
  FanOutLogicDriver driver = FanOutLogicDriver::Sent({}, {{0, 8}});
  driver.Responds(0);
  driver.Cancel();
  EXPECT_THAT(driver.OnAccepted(0, kBad), ElementsAre(End()));
  EXPECT_THAT(driver.result().failures, IsEmpty());
  EXPECT_EQ(driver.result().cancelled, 1u);
}

}  // namespace
}  // namespace sluice
