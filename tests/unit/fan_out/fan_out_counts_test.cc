#include <atomic>

#include "sluice/fan_out.h"

#include "tests/unit/fan_out/fan_out_fixture.h"
#include "tests/unit/net/silent_listener.h"

namespace sluice {
namespace {

using testing::HasCode;
using testing::Holds;
using testing::NameOf;
using testing::Says;
using testing::Text;

// The metrics of responses and fan-outs that have ended.
class FanOutCountsTest : public testing::FanOutTest {
 protected:
  // Every request has one outcome when `done` is called.
  void ExpectRequests(double ok, double cancelled) {
    EXPECT_EQ(Metric("sluice_calls_total", "ok"), ok);
    EXPECT_EQ(Metric("sluice_calls_total", "cancelled"), cancelled);
    for (const char* outcome : {"corrupt", "rpc_error", "rpc_deadline", "expired"}) {
      EXPECT_EQ(Metric("sluice_calls_total", outcome), 0) << outcome;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(By, FanOutCountsTest, ::testing::Values(SchedulePolicy::kRolling, SchedulePolicy::kGrants),
                         NameOf);

TEST_P(FanOutCountsTest, ResponsesAfterTheQuorumAreCancelledAndNotCorrupt) {
  Start(8);
  const auto result = fan_out_->Call(kUnary, Ask(8),
                                     [&](size_t, const Text&) {
                                       EXPECT_TRUE(AwaitReady(8)) << "all of them have come";
                                       return absl::OkStatus();
                                     },
                                     {.success_quorum = 3});
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.answered, 3u);
  EXPECT_EQ(result.cancelled, 5u);
  ExpectRequests(3, 5);
  EXPECT_TRUE(AwaitIdle());
}

// The first messages of the other streams are on their way to `merge` when one stream completes the quorum.
TEST_P(FanOutCountsTest, StreamsAfterTheQuorumAreCancelledAndNotCorrupt) {
  Start(4);
  for (size_t i = 0; i < 4; ++i) server(i).SetPlay(Says({"a", "b"}));
  std::atomic<int> merged = 0;
  const auto result = fan_out_->Call(kStream, Ask(4),
                                     [&](size_t, const Text&) {
                                       EXPECT_TRUE(AwaitReady(4));
                                       ++merged;
                                       return absl::OkStatus();
                                     },
                                     {.success_quorum = 1});
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_GE(merged, 2);
  EXPECT_EQ(result.answered + result.cancelled, 4u);
  EXPECT_GE(result.answered, 1u);
  ExpectRequests(static_cast<double>(result.answered), static_cast<double>(result.cancelled));
}

TEST_P(FanOutCountsTest, RivalsOfHedgesAreCancelledAndNotCorrupt) {
  Start(2);
  server(0).SetPlay(Holds("late"));
  server(1).SetPlay(Holds("later"));
  const auto pending = CallAsync(Ask(1, {1}), {.hedge_after = absl::Milliseconds(20)}, [&](size_t, const Text&) {
    EXPECT_TRUE(AwaitReady(2)) << "both have responded";
    return absl::OkStatus();
  });
  ASSERT_TRUE(server(0).AwaitHolding(1));
  ASSERT_TRUE(server(1).AwaitHolding(1));
  server(0).Release();
  server(1).Release();
  ASSERT_TRUE(pending->Await());
  EXPECT_TRUE(pending->result().status.ok()) << pending->result().status;
  EXPECT_EQ(pending->result().hedges, 1u);
  ExpectRequests(1, 1);
  EXPECT_FALSE(fan_out_->Call(kUnary, Ask(1, {1}), Ignore(), {.timeout = absl::Nanoseconds(1)}).status.ok());
  EXPECT_EQ(fan_out_->Call(kUnary, Ask(1, {1}), Ignore()).retries, 0u) << "neither of them counts as bad";
}

TEST_P(FanOutCountsTest, ResponsesAfterACancellationAreCancelledAndNotCorrupt) {
  Start(4);
  testing::Pending pending;
  testing::Notification started;
  pending.call = fan_out_->CallAsync(
      kUnary, Ask(4),
      [&](size_t, const Text&) {
        EXPECT_TRUE(AwaitReady(4));
        EXPECT_TRUE(started.Await());
        pending.call->Cancel();
        return absl::OkStatus();
      },
      {}, pending.Done());
  started.Notify();
  ASSERT_TRUE(pending.Await());
  EXPECT_EQ(pending.result().cancelled, 3u);
  ExpectRequests(1, 3);
}

TEST_P(FanOutCountsTest, AResponseThatMergeRefusesIsCorrupt) {
  Start(1);
  fan_out_->Call(kUnary, Ask(1), [](size_t, const Text&) { return absl::DataLossError("no good"); });
  EXPECT_EQ(Metric("sluice_calls_total", "corrupt"), 1);
  EXPECT_EQ(Metric("sluice_calls_total", "cancelled"), 0);
}

TEST_P(FanOutCountsTest, AFullQueueIsRefusedAndNotFailed) {
  Link::Options options = FixedBudget();
  options.schedule.queue_limit = 3;
  Start(2, options);
  ASSERT_THAT(fan_out_->Connect(), ::testing::IsEmpty());
  HoldBack();
  const auto waiting = CallAsync(Ask(2), {.timeout = absl::Minutes(5)});
  ASSERT_TRUE(AwaitState([](const ScheduleState& state) { return state.waiting_calls == 2; }));
  const auto result = fan_out_->Call(kUnary, Ask(2), Ignore());
  EXPECT_THAT(result.status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(result.asked, 2u);
  EXPECT_EQ(result.cancelled, 2u);
  EXPECT_EQ(Metric("sluice_blocks_total", "refused"), 1);
  EXPECT_EQ(Metric("sluice_queue_refusals_total", "full"), 2);
  EXPECT_EQ(Metric("sluice_blocks_total", "failed"), 0);
  LetGo();
  ASSERT_TRUE(waiting->Await());
  EXPECT_TRUE(waiting->result().status.ok()) << waiting->result().status;
  EXPECT_EQ(Metric("sluice_blocks_total", "complete"), 1);
}

TEST_P(FanOutCountsTest, AWorkerWithTooManyWaitingCallsFailsItsAskAndNoOther) {
  Link::Options options = FixedBudget();
  options.schedule.queue_limit = 200;
  StartServers(1);
  testing::SilentListener silent;
  MakeFanOut(options, {.workers = {silent.address()}, .connect_timeout = absl::Minutes(5)});
  std::vector<std::unique_ptr<testing::Pending>> waiting;
  for (int i = 0; i < 100; ++i) waiting.push_back(CallAsync(Ask(1), {.timeout = absl::Minutes(5)}));
  ASSERT_TRUE(AwaitState([](const ScheduleState& state) { return state.parked_calls == 100; }));
  const auto result = fan_out_->Call(kUnary, Ask(2), Ignore(), {.fail_limit = 1});
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.answered, 1u);
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_THAT(result.failures.front().status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(Metric("sluice_queue_refusals_total", "worker"), 1);
}

TEST_P(FanOutCountsTest, ACallThatWaitsForLongerThanQueueTimeoutIsExpiredAndNotFailed) {
  Link::Options options = FixedBudget();
  options.schedule.queue_timeout = absl::Milliseconds(50);
  Start(2, options);
  ASSERT_THAT(fan_out_->Connect(), ::testing::IsEmpty());
  HoldBack();
  const auto result = fan_out_->Call(kUnary, Ask(2), Ignore(), {.fail_limit = 2});
  EXPECT_EQ(result.failures.size(), 2u);
  EXPECT_THAT(result.failures.front().status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(Metric("sluice_calls_total", "expired"), 2);
  EXPECT_EQ(Metric("sluice_calls_total", "rpc_error"), 0);
  EXPECT_EQ(Metric("sluice_queue_refusals_total", "timeout"), 2);
  LetGo();
  EXPECT_TRUE(fan_out_->Call(kUnary, Ask(2), Ignore()).status.ok());
}

// A worker that reports RESOURCE_EXHAUSTED has failed; the link's queue has not refused the request.
TEST_P(FanOutCountsTest, AWorkerThatIsExhaustedIsFailedAndNotRefused) {
  Start(1);
  server(0).SetPlay(testing::Fails(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(fan_out_->Call(kUnary, Ask(1), Ignore()).status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(Metric("sluice_blocks_total", "refused"), 0);
  EXPECT_EQ(Metric("sluice_blocks_total", "failed"), 1);
}

}  // namespace
}  // namespace sluice
