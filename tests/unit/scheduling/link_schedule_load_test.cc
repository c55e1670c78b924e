#include <string>

#include "gtest/gtest.h"
#include "tests/unit/scheduling/grants_options.h"
#include "tests/unit/scheduling/schedule_driver.h"

// Tests the schedule's report on one worker.
namespace sluice {
namespace {

using std::chrono_literals::operator""ms;

class WorkerLoadTest : public ::testing::TestWithParam<SchedulePolicy> {
 protected:
  WorkerLoadTest() { link_.set_worker(7); }

  void ExpectCalls(int64_t calls, int64_t out, int64_t owing, int64_t ended) {
    EXPECT_EQ(link_.load().calls, calls);
    EXPECT_EQ(link_.load().out_calls, out);
    EXPECT_EQ(link_.load().owing_calls, owing);
    EXPECT_EQ(link_.load().ended_calls, ended);
  }

  ScheduleDriver link_{OptionsWith(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(In, WorkerLoadTest,
                         ::testing::Values(SchedulePolicy::kUnscheduled, SchedulePolicy::kBatches,
                                           SchedulePolicy::kRolling, SchedulePolicy::kGrants),
                         [](const auto& info) { return std::string(SchedulePolicyName(info.param)); });

TEST_P(WorkerLoadTest, CountsCallsThatAreOutThatOweAndThatHaveEnded) {
  link_.Submit(At(0ms), {3000});
  ExpectCalls(1, 1, 0, 0);
  link_.Ready(At(1ms), 0, 3000);
  ExpectCalls(1, 1, 1, 0);
  link_.Receive(At(2ms), 0, 3000);
  ExpectCalls(1, 1, 0, 0);
  link_.Finish(At(3ms), 0);
  ExpectCalls(0, 0, 0, 1);
}

TEST_P(WorkerLoadTest, ACallThatIsSentAgainIsOutOnce) {
  link_.Submit(At(0ms), {3000});
  for (int refused = 0; refused < 3; ++refused) {
    link_.Unsent(At(1ms), 0);
    ExpectCalls(1, 0, 0, 0);
    link_.Unpark(At(1ms), 0);
    ExpectCalls(1, 1, 0, 0);
  }
  link_.Finish(At(2ms), 0, CallEnd::kAborted);
  ExpectCalls(0, 0, 0, 1);
}

TEST_P(WorkerLoadTest, ACallThatEndsUnsentWasNeverOut) {
  link_.SubmitParked(At(0ms), 3000);
  ExpectCalls(1, 0, 0, 0);
  link_.CancelCall(At(1ms), 0);
  ExpectCalls(0, 0, 0, 0);
}

TEST_P(WorkerLoadTest, AnAbortedCallOwesNothing) {
  link_.Submit(At(0ms), {3000});
  link_.Ready(At(1ms), 0, 3000);
  link_.CancelCall(At(2ms), 0);
  ExpectCalls(1, 1, 0, 0);
}

TEST_P(WorkerLoadTest, SaysSinceWhenNothingHasCome) {
  link_.Submit(At(0ms), {3000, 3000});
  link_.Ready(At(1ms), 0, 3000);
  EXPECT_EQ(link_.load().owed_since, At(1ms));
  link_.Receive(At(3ms), 0, 100);
  EXPECT_EQ(link_.load().owed_since, At(3ms));
  link_.Ready(At(5ms), 1, 3000);
  EXPECT_EQ(link_.load().owed_since, At(5ms)) << "the other prefix came";
  link_.Finish(At(6ms), 0, CallEnd::kAborted);
  EXPECT_EQ(link_.load().owed_since, At(5ms));
  link_.Ready(At(7ms), 1, 4000);
  EXPECT_EQ(link_.load().owed_since, At(5ms)) << "only the caller has room for more";
}

TEST_P(WorkerLoadTest, CountsPausesWhenSomethingComesAgain) {
  const auto pause = WorkerLoad::kPause + absl::ToChronoNanoseconds(GrantsOptions().profile.propagation_rtt);
  link_.Submit(At(0ms), {3000});
  link_.Ready(At(1000ms), 0, 3000);
  link_.Receive(At(1000ms) + pause - std::chrono::nanoseconds(1), 0, 1000);
  EXPECT_EQ(link_.load().pauses, 0);
  link_.Timer(At(5000ms));  // the call has stalled if there is a budget
  EXPECT_EQ(link_.load().pauses, 0) << "it may be dead";
  EXPECT_EQ(link_.load().owing_calls, 1);
  link_.Receive(At(5000ms), 0, 1000);
  EXPECT_EQ(link_.load().pauses, 1);
  link_.Receive(At(5000ms), 0, 1000);
  link_.Finish(At(9000ms), 0);
  EXPECT_EQ(link_.load().pauses, 1) << "it owed nothing any more";
}

class BacklogTest : public WorkerLoadTest {
 protected:
  std::chrono::nanoseconds backlogged_time() const { return link_.state().backlogged_time; }
  int64_t backlogged_bytes() const { return link_.state().backlogged_bytes; }
};

INSTANTIATE_TEST_SUITE_P(In, BacklogTest, ::testing::Values(SchedulePolicy::kRolling, SchedulePolicy::kGrants),
                         [](const auto& info) { return std::string(SchedulePolicyName(info.param)); });

TEST_P(BacklogTest, IsTheTimeInWhichCallsWaitForTheBudget) {
  link_.set_worker(0);
  link_.Submit(At(0ms), {9000, 9000});
  for (const uint64_t tag : {0, 1}) {
    if (GetParam() == SchedulePolicy::kGrants) link_.Ready(At(1ms), tag, 9000);
  }
  link_.Timer(At(1ms));
  const auto before = backlogged_time();
  int64_t received_bytes = 0;
  for (int i = 1; i <= 9; ++i) {
    link_.Receive(At(i * 1ms + 1ms), 0, 1000);
    received_bytes += 1000;
  }
  link_.Finish(At(11ms), 0);
  EXPECT_GT(backlogged_time() - before, 5ms);
  EXPECT_LE(backlogged_time() - before, 10ms);
  EXPECT_GT(backlogged_bytes(), 5000);
  EXPECT_LE(backlogged_bytes(), received_bytes);
}

TEST_P(BacklogTest, HasNoneIfAllThatIsAskedForFits) {
  link_.Submit(At(0ms), {3000});
  link_.Ready(At(5ms), 0, 3000);
  link_.Receive(At(8ms), 0, 3000);
  link_.Finish(At(9ms), 0);
  link_.SubmitParked(At(9ms), 3000);
  link_.Timer(At(20ms));
  EXPECT_EQ(backlogged_time(), 0ms);
  EXPECT_EQ(backlogged_bytes(), 0);
}

}  // namespace
}  // namespace sluice
