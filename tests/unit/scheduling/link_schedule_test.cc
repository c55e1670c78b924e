#include "lib/scheduling/link_schedule.h"

#include "sluice/plan.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/scheduling/limit_status.h"
#include "tests/unit/scheduling/grants_options.h"
#include "tests/unit/scheduling/schedule_driver.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A byte takes a microsecond and frames have no overhead, so a response of whole packets costs its payload.
ScheduleOptions TestOptions(SchedulePolicy policy) {
  ScheduleOptions options;
  options.profile.capacity_bytes_per_second = 1e6;
  options.profile.buffer_bytes = 10'000;
  options.profile.propagation_rtt = absl::Milliseconds(1);
  options.profile.packet_payload_bytes = 1000;
  options.profile.frame_bytes = 1000;
  options.profile.ack_frame_bytes = 40;
  options.policy = policy;
  options.stall_timeout = absl::InfiniteDuration();
  options.shortest_first = false;
  return options;
}

ScheduleOptions Rolling() {
  return TestOptions(SchedulePolicy::kRolling);
}
ScheduleOptions Unscheduled() {
  return TestOptions(SchedulePolicy::kUnscheduled);
}

absl::Status CreateStatus(const ScheduleOptions& options) {
  return options.Validate();
}

absl::Status SubmitStatus(ScheduleDriver& link, TimePoint now, const std::vector<CallRequest>& calls,
                          TimePoint deadline = TimePoint::max()) {
  std::vector<Action> actions;
  const ScheduleState before = link.state();
  const absl::Status status = link.schedule().Submit(now, calls, deadline, actions).status();
  EXPECT_THAT(actions, IsEmpty());
  EXPECT_EQ(link.state().submitted_calls, before.submitted_calls);
  EXPECT_EQ(link.state().blocks, before.blocks);
  return status;
}

absl::Status AddStatus(ScheduleDriver& link, TimePoint now, BlockId block, int64_t size) {
  std::vector<Action> actions;
  const absl::Status status = link.schedule().Add(now, block, {.response_bytes = size}, actions).status();
  EXPECT_THAT(actions, IsEmpty());
  return status;
}

TEST(CreateTest, RefusesOptionsOutOfBounds) {
  ScheduleOptions profile = Rolling();
  profile.profile.capacity_bytes_per_second = 0;
  EXPECT_EQ(CreateStatus(profile).code(), absl::StatusCode::kInvalidArgument);
  ScheduleOptions budget = Rolling();
  budget.budget_bytes = 0;
  EXPECT_EQ(CreateStatus(budget), absl::InvalidArgumentError("budget_bytes: 0 is below 1"));
  ScheduleOptions queue = Rolling();
  queue.queue_limit = 0;
  EXPECT_EQ(CreateStatus(queue), absl::InvalidArgumentError("queue_limit: 0 is below 1"));
  ScheduleOptions timeout = Rolling();
  timeout.queue_timeout = absl::ZeroDuration();
  EXPECT_EQ(CreateStatus(timeout), absl::InvalidArgumentError("queue_timeout: 0 is not above 0"));
}

TEST(SubmitTest, UnscheduledSendsEverythingAtOnce) {
  ScheduleOptions options = Unscheduled();
  options.budget_bytes = 1;
  ScheduleDriver link(options);
  EXPECT_THAT(link.Submit(At(0ms), {9000, 9000, 9000}), ElementsAre("send 0", "send 1", "send 2"));
  EXPECT_EQ(link.state().in_flight_bytes, 27'000);
}

TEST(SubmitTest, RollingSendsWhatFitsAndTheNextAsOneArrives) {
  ScheduleDriver link(Rolling());
  EXPECT_THAT(link.Submit(At(0ms), {5000, 5000, 5000, 5000}), ElementsAre("send 0", "send 1"));
  EXPECT_THAT(link.Finish(At(5ms), 0), ElementsAre("send 2"));
  EXPECT_THAT(link.Finish(At(6ms), 1), ElementsAre("send 3"));
  EXPECT_THAT(link.Finish(At(7ms), 2), IsEmpty());
  EXPECT_THAT(link.Finish(At(8ms), 3), IsEmpty());
  EXPECT_EQ(link.state().blocks, 0);
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(SubmitTest, CallThatDoesNotFitIsNotOvertaken) {
  ScheduleDriver link(Rolling());
  EXPECT_THAT(link.Submit(At(0ms), {6000, 6000, 1000}), ElementsAre("send 0"));
  EXPECT_THAT(link.Submit(At(0ms), {1000}), IsEmpty());
  EXPECT_THAT(link.Finish(At(6ms), 0), ElementsAre("send 1", "send 2", "send 3"));
}

TEST(SubmitTest, NextBlockStartsWhenTheFirstHasNothingLeftToSend) {
  ScheduleDriver link(Rolling());
  EXPECT_THAT(link.Submit(At(0ms), {4000}), ElementsAre("send 0"));
  EXPECT_THAT(link.Submit(At(0ms), {6000, 6000}), ElementsAre("send 1"));
  EXPECT_THAT(link.Submit(At(0ms), {4000}), IsEmpty());
  EXPECT_THAT(link.Finish(At(6ms), 1), ElementsAre("send 2"));
  EXPECT_THAT(link.Finish(At(7ms), 0), ElementsAre("send 3"));
}

// A third of the budget is three packets. A frame header takes nine of their bytes.
TEST(SubmitTest, ResponseLargerThanTheBudgetLeavesWithAPartWhenTheLinkIsIdle) {
  ScheduleDriver link(Rolling());
  EXPECT_THAT(link.Submit(At(0ms), {1000, 20'000, 1000}), ElementsAre("send 0"));
  EXPECT_THAT(link.Finish(At(1ms), 0), ElementsAre("send 1 2991", "send 2"));
  EXPECT_EQ(link.state().in_flight_bytes, 3991);
}

TEST(SubmitTest, WhatAnAnswerHasBeyondTheBytesOfItsRequestIsGranted) {
  for (const SchedulePolicy policy : {SchedulePolicy::kRolling, SchedulePolicy::kBatches}) {
    ScheduleDriver link(TestOptions(policy));
    EXPECT_THAT(link.Submit(At(0ms), {5000}), ElementsAre("send 0"));
    EXPECT_THAT(link.Ready(At(1ms), 0, 5000), IsEmpty());
    EXPECT_THAT(link.Ready(At(2ms), 0, 8000), ElementsAre("grant 0 3000"));
    EXPECT_THAT(link.Ready(At(3ms), 0, 20'000), IsEmpty()) << "a part does not fit yet";
    EXPECT_THAT(link.Receive(At(4ms), 0, 5000), ElementsAre("grant 0 2991", "grant 0 2991"));
    EXPECT_EQ(link.state().in_flight_bytes, 3000 + 2 * 2991);
  }
}

TEST(SubmitTest, RequestsOfRollingDoNotOvertakeAReadyAnswer) {
  ScheduleDriver link(Rolling());
  EXPECT_THAT(link.Submit(At(0ms), {9000, 500, 500}), ElementsAre("send 0", "send 1", "send 2"));
  EXPECT_THAT(link.Ready(At(1ms), 1, 3500), IsEmpty());
  EXPECT_THAT(link.Receive(At(1ms), 2, 500), IsEmpty());
  EXPECT_THAT(link.Submit(At(1ms), {100, 6000}), IsEmpty()) << "the answer was first";
  EXPECT_THAT(link.Ready(At(2ms), 0, 50'000), IsEmpty());
  EXPECT_THAT(link.Receive(At(9ms), 0, 9000), ElementsAre("grant 1 3000", "grant 0 2991", "grant 0 2991"));
}

TEST(SubmitTest, EmptyAnswerCostsAPacket) {
  ScheduleDriver link(Rolling());
  EXPECT_THAT(link.Submit(At(0ms), {0}), ElementsAre("send 0"));
  EXPECT_EQ(link.state().in_flight_bytes, 1);  // one byte of payload in a frame without overhead
}

TEST(SubmitTest, PacketBufferCountsFullFrames) {
  ScheduleOptions options = Rolling();
  options.profile.buffer_bytes = 0;
  options.profile.buffer_packets = 4;
  ScheduleDriver link(options);
  EXPECT_THAT(link.Submit(At(0ms), {1001, 1, 1, 1}), ElementsAre("send 0", "send 1", "send 2"));
  EXPECT_EQ(link.state().budget_bytes, 4000);
  EXPECT_EQ(link.state().in_flight_bytes, 4000);
}

TEST(SubmitTest, RefusesBlocksThatCanNeverBeLetIn) {
  ScheduleOptions options = Rolling();
  options.queue_limit = 2;
  ScheduleDriver link(options);
  EXPECT_EQ(SubmitStatus(link, At(0ms), {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SubmitStatus(link, At(0ms), {{.response_bytes = -1}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SubmitStatus(link, At(0ms), {{.response_bytes = kMaxResponseBytes + 1}}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SubmitStatus(link, At(0ms), {{}, {}, {}}).code(), absl::StatusCode::kInvalidArgument);
}

TEST(SubmitTest, FullQueueRefusesAtOnceAndTakesCallsAgainLater) {
  ScheduleOptions options = Rolling();
  options.queue_limit = 2;
  ScheduleDriver link(options);
  EXPECT_THAT(link.Submit(At(0ms), {10'000, 10'000}), ElementsAre("send 0"));
  EXPECT_EQ(SubmitStatus(link, At(0ms), {{}, {}}),
            AtLimit("schedule.queue_limit", "the queue has no room for 2 calls: 1 wait, queue_limit is 2"));
  EXPECT_THAT(link.Finish(At(1ms), 0), ElementsAre("send 1"));
  EXPECT_THAT(link.Submit(At(1ms), {1, 1}), IsEmpty());
}

TEST(SubmitTest, AFullClassLeavesTheQueueToOthers) {
  ScheduleOptions options = Rolling();
  options.classes = {{.name = "queries"}, {.name = "scan", .queue_limit = 2}};
  ScheduleDriver link(options);
  EXPECT_THAT(link.Submit(At(0ms), {10'000}), ElementsAre("send 0"));
  std::vector<Action> actions;
  const std::vector<CallRequest> two(2);
  const auto submit = [&](size_t traffic_class) {
    return link.schedule().Submit(At(0ms), two, TimePoint::max(), actions, nullptr, traffic_class).status();
  };
  EXPECT_EQ(submit(1), absl::OkStatus());
  EXPECT_EQ(submit(1), AtLimit("schedule.classes.queue_limit",
                               "the queue of class \"scan\" has no room for 2 calls: 2 wait, its queue_limit is 2"));
  EXPECT_EQ(submit(0), absl::OkStatus());
}

TEST(SubmitTest, DeadlineMustBeAhead) {
  ScheduleDriver link(Rolling());
  EXPECT_EQ(SubmitStatus(link, At(5ms), {{}}, At(5ms)).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(link.Submit(At(5ms), {1}, At(6ms)), ElementsAre("send 0"));
}

TEST(SubmitTest, BlocksAreNumberedOnceEvenWhenTheyHaveEnded) {
  ScheduleDriver link(Rolling());
  link.Submit(At(0ms), {1000});
  const BlockId first = link.last_block();
  link.Finish(At(1ms), 0);
  link.Submit(At(1ms), {1000});
  EXPECT_NE(link.last_block(), first);
}

TEST(AddTest, RetryTakesTheBlocksPlaceInTheQueue) {
  ScheduleDriver link(Rolling());
  link.Submit(At(0ms), {10'000});
  const BlockId first = link.last_block();
  EXPECT_THAT(link.Submit(At(0ms), {10'000, 10'000}), IsEmpty());
  EXPECT_THAT(link.Add(At(1ms), first, 10'000), IsEmpty());
  EXPECT_THAT(link.Finish(At(1ms), 0), ElementsAre("send 3"));
  EXPECT_THAT(link.Finish(At(2ms), 3), ElementsAre("send 1"));
}

TEST(AddTest, RetriesOfSeveralBlocksKeepTheOrderOfTheBlocks) {
  ScheduleDriver link(Rolling());
  link.Submit(At(0ms), {5000});
  const BlockId first = link.last_block();
  link.Submit(At(0ms), {5000});
  const BlockId second = link.last_block();
  link.Submit(At(0ms), {10'000});
  EXPECT_THAT(link.Add(At(1ms), second, 5000), IsEmpty());
  EXPECT_THAT(link.Add(At(1ms), first, 5000), IsEmpty());
  EXPECT_THAT(link.Finish(At(2ms), 0), ElementsAre("send 4"));
  EXPECT_THAT(link.Finish(At(2ms), 1), ElementsAre("send 3"));
}

TEST(AddTest, KeepsTheBlockWhenTheFailedCallEndsAfterIt) {
  ScheduleDriver link(Rolling());
  link.Submit(At(0ms), {1000});
  EXPECT_THAT(link.Add(At(1ms), link.last_block(), 1000), ElementsAre("send 1"));
  link.Finish(At(1ms), 0);
  EXPECT_EQ(link.state().blocks, 1);
  link.Finish(At(2ms), 1);
  EXPECT_EQ(link.state().blocks, 0);
}

TEST(AddTest, IsNotHeldToTheQueueLimit) {
  ScheduleOptions options = Rolling();
  options.queue_limit = 1;
  ScheduleDriver link(options);
  link.Submit(At(0ms), {10'000});
  link.Add(At(0ms), link.last_block(), 10'000);
  link.Add(At(0ms), link.last_block(), 10'000);
  EXPECT_EQ(link.state().waiting_calls, 2);
}

TEST(AddTest, RefusesWhatCanNotBeServed) {
  ScheduleDriver link(Rolling());
  link.Submit(At(0ms), {1000}, At(10ms));
  EXPECT_EQ(AddStatus(link, At(1ms), link.last_block(), -1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AddStatus(link, At(1ms), link.last_block() + 1, 1).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(AddStatus(link, At(10ms), link.last_block(), 1).code(), absl::StatusCode::kDeadlineExceeded);
  link.Submit(At(10ms), {1000});
  link.Cancel(At(10ms), link.last_block());
  EXPECT_EQ(AddStatus(link, At(10ms), link.last_block(), 1).code(), absl::StatusCode::kCancelled);
  link.Finish(At(11ms), 1);
  EXPECT_EQ(AddStatus(link, At(11ms), link.last_block(), 1).code(), absl::StatusCode::kNotFound);
}

TEST(OnFinishedTest, ACallEndsOnce) {
  ScheduleDriver link(Rolling());
  link.Submit(At(0ms), {5000, 5000, 5000, 5000});
  EXPECT_THAT(link.Finish(At(1ms), 0), ElementsAre("send 2"));
  EXPECT_THAT(link.Finish(At(1ms), 0), IsEmpty());
  EXPECT_EQ(link.state().in_flight_calls, 2);
}

TEST(OnFinishedTest, AReusedSlotIsAnotherCall) {
  ScheduleDriver link(Rolling());
  link.Submit(At(0ms), {10'000});
  link.Finish(At(1ms), 0);
  link.Submit(At(1ms), {10'000});
  EXPECT_EQ(link.call(0).slot, link.call(1).slot);
  EXPECT_NE(link.call(0), link.call(1));
  link.Finish(At(2ms), 0);
  EXPECT_EQ(link.state().in_flight_calls, 1);
}

TEST(OnFinishedTest, IgnoresCallsThatWereNeverThere) {
  ScheduleDriver link(Rolling());
  link.Submit(At(0ms), {10'000, 10'000});
  std::vector<Action> actions;
  link.schedule().OnFinished(At(1ms), {.slot = 1, .generation = 0}, CallEnd::kArrived,
                             actions);  // the call still waits
  link.schedule().OnFinished(At(1ms), {.slot = 99, .generation = 0}, CallEnd::kArrived, actions);
  EXPECT_THAT(actions, IsEmpty());
  EXPECT_EQ(link.state().ended_calls, 0);
}

TEST(OnFinishedTest, AbortedCallStaysChargedUntilTheBufferHasDrained) {
  ScheduleDriver link(Rolling());
  link.Submit(At(0ms), {10'000, 10'000});
  EXPECT_THAT(link.Finish(At(5ms), 0, CallEnd::kAborted), IsEmpty());
  EXPECT_EQ(link.state().in_flight_calls, 0);
  EXPECT_EQ(link.state().in_flight_bytes, 10'000);
  EXPECT_EQ(link.next_timer(), At(5ms + kDrainTime));
  EXPECT_THAT(link.Timer(At(5ms + kDrainTime) - std::chrono::nanoseconds(1)), IsEmpty());
  EXPECT_THAT(link.Timer(At(5ms + kDrainTime)), ElementsAre("send 1"));
  EXPECT_EQ(link.next_timer(), TimePoint::max());
}

TEST(OnFinishedTest, UnscheduledDrainsTooSinceABudgetMayCome) {
  ScheduleDriver link(Unscheduled());
  link.Submit(At(0ms), {10'000});
  link.Finish(At(5ms), 0, CallEnd::kAborted);
  EXPECT_EQ(link.state().in_flight_bytes, 10'000);
  link.Timer(link.next_timer());
  EXPECT_EQ(link.state().in_flight_bytes, 0);
  EXPECT_EQ(link.next_timer(), TimePoint::max());
}

TEST(CancelTest, DropsWhatWaitsAndAbortsWhatIsInFlightOnce) {
  ScheduleDriver link(Rolling());
  link.Submit(At(0ms), {5000, 5000, 5000, 5000});
  const BlockId block = link.last_block();
  EXPECT_THAT(link.Cancel(At(1ms), block), ElementsAre("abort 0", "abort 1", "drop 2", "drop 3"));
  EXPECT_THAT(link.Cancel(At(1ms), block), IsEmpty());
  EXPECT_EQ(link.state().in_flight_bytes, 10'000);
  link.Finish(At(2ms), 0, CallEnd::kAborted);
  link.Finish(At(2ms), 1, CallEnd::kArrived);  // ended before its abort
  EXPECT_EQ(link.state().in_flight_bytes, 5000);
  EXPECT_EQ(link.state().blocks, 0);
  EXPECT_THAT(link.Cancel(At(3ms), block), IsEmpty());
}

TEST(CancelTest, LetsTheNextBlockGo) {
  ScheduleDriver link(Rolling());
  link.Submit(At(0ms), {5000});
  link.Submit(At(0ms), {10'000});
  const BlockId waits = link.last_block();
  EXPECT_THAT(link.Submit(At(0ms), {5000}), IsEmpty());
  EXPECT_THAT(link.Cancel(At(1ms), waits), ElementsAre("drop 1", "send 2"));
}

TEST(OnTimerTest, DeadlineExpiresWhatWaitsAndNothingElse) {
  ScheduleDriver link(Rolling());
  link.Submit(At(0ms), {10'000, 10'000}, At(20ms));
  link.Submit(At(0ms), {10'000}, At(10ms));
  EXPECT_EQ(link.next_timer(), At(10ms));
  EXPECT_THAT(link.Timer(At(10ms) - std::chrono::nanoseconds(1)), IsEmpty());
  EXPECT_THAT(link.Timer(At(10ms)), ElementsAre("expire 2"));
  EXPECT_EQ(link.next_timer(), At(20ms));
  EXPECT_THAT(link.Timer(At(20ms)), ElementsAre("expire 1"));
  EXPECT_EQ(link.next_timer(), TimePoint::max());
  EXPECT_EQ(link.state().blocks, 1);
  link.Finish(At(21ms), 0);
  EXPECT_EQ(link.state().blocks, 0);
}

TEST(OnTimerTest, ABlockThatWaitsForItsAnswersOnlyHasNoTimer) {
  ScheduleDriver link(Rolling());
  link.Submit(At(0ms), {1000}, At(10ms));
  EXPECT_EQ(link.next_timer(), TimePoint::max());
}

TEST(OnTimerTest, NothingIsSentAfterItsDeadlineByAnyEvent) {
  ScheduleDriver link(Rolling());
  link.Submit(At(0ms), {10'000});
  link.Submit(At(0ms), {1000}, At(10ms));
  link.Submit(At(0ms), {1000}, At(11ms));
  EXPECT_THAT(link.Finish(At(10ms), 0), ElementsAre("expire 1", "send 2"));
}

TEST(OnTimerTest, TimeThatGoesBackCountsAsTheLatest) {
  ScheduleDriver link(Rolling());
  link.Submit(At(10ms), {10'000, 10'000});
  EXPECT_THAT(link.Finish(At(8ms), 0, CallEnd::kAborted), IsEmpty());
  EXPECT_EQ(link.next_timer(), At(10ms + kDrainTime));
  EXPECT_EQ(SubmitStatus(link, At(8ms), {{}}, At(9ms)).code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(SetBudgetTest, LargerBudgetAdmitsAtOnce) {
  ScheduleDriver link(Rolling());
  EXPECT_THAT(link.Submit(At(0ms), {5000, 5000, 5000, 5000}), ElementsAre("send 0", "send 1"));
  EXPECT_THAT(link.SetBudget(At(1ms), 15'000), ElementsAre("send 2"));
  EXPECT_EQ(link.state().budget_bytes, 15'000);
}

TEST(SetBudgetTest, SmallerBudgetOnlyDrains) {
  ScheduleDriver link(Rolling());
  link.Submit(At(0ms), {5000, 5000, 5000});
  EXPECT_THAT(link.SetBudget(At(1ms), 5000), IsEmpty());
  EXPECT_EQ(link.state().in_flight_bytes, 10'000);
  EXPECT_THAT(link.Finish(At(2ms), 0), IsEmpty());
  EXPECT_THAT(link.Finish(At(3ms), 1), ElementsAre("send 2"));
}

TEST(SetBudgetTest, BoundIsOneByteAndUnscheduledHasNone) {
  std::vector<Action> actions;
  ScheduleDriver link(Unscheduled());
  EXPECT_EQ(link.schedule().SetBudget(At(0ms), 0, actions), absl::InvalidArgumentError("budget_bytes: 0 is below 1"));
  link.SetBudget(At(0ms), 1);
  EXPECT_THAT(link.Submit(At(0ms), {1000, 1000}), ElementsAre("send 0", "send 1"));
  EXPECT_EQ(link.state().budget_bytes, std::numeric_limits<int64_t>::max());
}

TEST(StateTest, EveryCallIsWaitingInFlightOrEnded) {
  ScheduleDriver link(Rolling());
  link.Submit(At(0ms), {5000, 5000, 5000, 5000});
  link.Finish(At(1ms), 0);
  const ScheduleState state = link.state();
  EXPECT_EQ(state.submitted_calls, 4);
  EXPECT_EQ(state.waiting_calls, 1);
  EXPECT_EQ(state.in_flight_calls, 2);
  EXPECT_EQ(state.ended_calls, 1);
  EXPECT_EQ(state.in_flight_bytes, 10'000);
  EXPECT_EQ(state.blocks, 1);
}

}  // namespace
}  // namespace sluice
