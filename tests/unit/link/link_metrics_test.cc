#include "lib/link/link_metrics.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/telemetry/scrape.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class LinkMetricsTest : public ::testing::Test {
 protected:
  std::string Text() const { return ScrapeText({&registry_, &metrics_}); }

  prometheus::Registry registry_;
  LinkMetrics metrics_{registry_};
};

TEST_F(LinkMetricsTest, EveryCounterStartsAtZero) {
  EXPECT_THAT(Text(), AllOf(HasSubstr("\nsluice_calls_total{outcome=\"corrupt\"} 0\n"),
                            HasSubstr("\nsluice_blocks_total{outcome=\"refused\"} 0\n"),
                            HasSubstr("\nsluice_call_retries_total 0\n")));
}

TEST_F(LinkMetricsTest, CountsUnderTheLabelOfEachValue) {
  metrics_.AddGoodput(10240, WorkerKind::kPrimary);
  metrics_.AddGoodput(5, WorkerKind::kReplica);
  int count = 0;
  for (const CallOutcome outcome : {CallOutcome::kOk, CallOutcome::kRpcError, CallOutcome::kRpcDeadline,
                                    CallOutcome::kCancelled, CallOutcome::kCorrupt, CallOutcome::kExpired}) {
    ++count;
    for (int i = 0; i < count; ++i) metrics_.CountCall(outcome);
  }
  for (const BlockOutcome outcome : {BlockOutcome::kComplete, BlockOutcome::kPartial, BlockOutcome::kFailed,
                                     BlockOutcome::kCancelled, BlockOutcome::kDeadline, BlockOutcome::kRefused}) {
    ++count;
    for (int i = 0; i < count; ++i) metrics_.CountBlock(outcome);
  }
  metrics_.CountTimeout(TimeoutKind::kRpcDeadline);
  for (int i = 0; i < 2; ++i) metrics_.CountTimeout(TimeoutKind::kQueueDeadline);
  for (int i = 0; i < 3; ++i) metrics_.CountTimeout(TimeoutKind::kStall);
  metrics_.CountTimeouts(TimeoutKind::kTcpRto, 4);
  metrics_.CountQueueRefusals(QueueRefusal::kFull, 1);
  metrics_.CountQueueRefusals(QueueRefusal::kWorker, 2);
  metrics_.CountQueueRefusals(QueueRefusal::kTimeout, 3);
  metrics_.CountCallRetry();
  metrics_.CountCallbackHold();
  const std::string text = Text();
  for (const char* line : {"sluice_goodput_bytes_total{worker_kind=\"primary\"} 10240",
                           "sluice_goodput_bytes_total{worker_kind=\"replica\"} 5",
                           "sluice_calls_total{outcome=\"ok\"} 1",
                           "sluice_calls_total{outcome=\"rpc_error\"} 2",
                           "sluice_calls_total{outcome=\"rpc_deadline\"} 3",
                           "sluice_calls_total{outcome=\"cancelled\"} 4",
                           "sluice_calls_total{outcome=\"corrupt\"} 5",
                           "sluice_calls_total{outcome=\"expired\"} 6",
                           "sluice_blocks_total{outcome=\"complete\"} 7",
                           "sluice_blocks_total{outcome=\"partial\"} 8",
                           "sluice_blocks_total{outcome=\"failed\"} 9",
                           "sluice_blocks_total{outcome=\"cancelled\"} 10",
                           "sluice_blocks_total{outcome=\"deadline\"} 11",
                           "sluice_blocks_total{outcome=\"refused\"} 12",
                           "sluice_timeouts_total{kind=\"rpc_deadline\"} 1",
                           "sluice_timeouts_total{kind=\"queue_deadline\"} 2",
                           "sluice_timeouts_total{kind=\"stall\"} 3",
                           "sluice_timeouts_total{kind=\"tcp_rto\"} 4",
                           "sluice_queue_refusals_total{reason=\"full\"} 1",
                           "sluice_queue_refusals_total{reason=\"worker\"} 2",
                           "sluice_queue_refusals_total{reason=\"timeout\"} 3",
                           "sluice_call_retries_total 1",
                           "sluice_callback_holds_total 1"}) {
    EXPECT_THAT(text, HasSubstr("\n" + std::string(line) + "\n"));
  }
}

TEST_F(LinkMetricsTest, CountsWhatBecomesOfPacketsAndOfTheBudget) {
  EXPECT_THAT(Text(), AllOf(HasSubstr("\nsluice_inferred_losses_total{evidence=\"silence\"} 0\n"),
                            HasSubstr("\nsluice_worker_reported_tcp_total{event=\"rto\"} 0\n"),
                            HasSubstr("\nsluice_budget_decisions_total{decision=\"probe\"} 0\n")));
  metrics_.CountInferredLosses(LossEvidence::kOutOfOrder, 2);
  metrics_.CountInferredLosses(LossEvidence::kOutOfOrder, 0);
  metrics_.CountInferredLosses(LossEvidence::kSilence, 3);
  metrics_.CountInferredLosses(LossEvidence::kPause, 4);
  metrics_.CountOutOfOrderPackets(40);
  metrics_.CountWorkerReport(WorkerReport::kRetransmit, 5);
  metrics_.CountWorkerReport(WorkerReport::kRto, 6);
  int count = 6;
  for (const BudgetDecision decision :
       {BudgetDecision::kGrow, BudgetDecision::kProbe, BudgetDecision::kBackOff, BudgetDecision::kGiveBack}) {
    ++count;
    for (int i = 0; i < count; ++i) metrics_.CountBudgetChange(decision);
  }
  const std::string text = Text();
  for (const char* line :
       {"sluice_inferred_losses_total{evidence=\"out_of_order\"} 2",
        "sluice_inferred_losses_total{evidence=\"silence\"} 3", "sluice_inferred_losses_total{evidence=\"pause\"} 4",
        "sluice_link_out_of_order_packets_total 40", "sluice_worker_reported_tcp_total{event=\"retransmit\"} 5",
        "sluice_worker_reported_tcp_total{event=\"rto\"} 6", "sluice_budget_decisions_total{decision=\"grow\"} 7",
        "sluice_budget_decisions_total{decision=\"probe\"} 8", "sluice_budget_decisions_total{decision=\"back_off\"} 9",
        "sluice_budget_decisions_total{decision=\"give_back\"} 10"}) {
    EXPECT_THAT(text, HasSubstr("\n" + std::string(line) + "\n"));
  }
}

TEST_F(LinkMetricsTest, ObservesSecondsAndSetsARetransmissionTimeoutApart) {
  metrics_.ObserveTransfer(absl::Milliseconds(199));
  metrics_.ObserveTransfer(absl::Milliseconds(210));
  metrics_.ObserveBlock(absl::Milliseconds(1500), 0.5);
  metrics_.ObserveQueueWait(absl::Microseconds(50));
  metrics_.ObserveTimerLateness(absl::Microseconds(70));
  EXPECT_THAT(Text(), AllOf(HasSubstr("\nsluice_call_transfer_seconds_bucket{le=\"0.2\"} 1\n"),
                            HasSubstr("\nsluice_call_transfer_seconds_bucket{le=\"0.25\"} 2\n"),
                            HasSubstr("\nsluice_block_seconds_sum 1.5\n"),
                            HasSubstr("\nsluice_block_coverage_ratio_bucket{le=\"0.25\"} 0\n"),
                            HasSubstr("\nsluice_block_coverage_ratio_bucket{le=\"0.5\"} 1\n"),
                            HasSubstr("\nsluice_queue_wait_seconds_bucket{le=\"0.0001\"} 1\n"),
                            HasSubstr("\nsluice_timer_lateness_seconds_bucket{le=\"0.0001\"} 1\n"),
                            HasSubstr("\nsluice_timer_lateness_seconds_count 1\n")));
}

TEST_F(LinkMetricsTest, GaugesAreReadFromTheirSourceWhenScraped) {
  EXPECT_THAT(metrics_.Collect(), IsEmpty());
  LinkGauges now{.queued_calls = 1,
                 .stream_waiting_calls = 7,
                 .queued_blocks = 2,
                 .late_blocks = 4,
                 .in_flight_bytes = 3,
                 .in_flight_calls = 4,
                 .budget_bytes = 5,
                 .plan_batch_workers = 6,
                 .plan_wnd_max_packets = 7,
                 .plan_slot = absl::Milliseconds(8),
                 .plan_goodput_bytes_per_second = 11.5e6,
                 .link_capacity_bytes_per_second = 12.5e6,
                 .budget_floor_bytes = 9,
                 .budget_limit_bytes = 10,
                 .budget_ceiling_bytes = 11,
                 .idle_time = std::chrono::milliseconds(1500),
                 .callback_bytes = 12};
  metrics_.SetGaugeSource([&now] { return now; });
  EXPECT_THAT(Text(),
              AllOf(HasSubstr("\nsluice_queued_calls 1\n"), HasSubstr("\nsluice_queued_blocks 2\n"),
                    HasSubstr("\nsluice_late_blocks_total 4\n"), HasSubstr("\nsluice_stream_waiting_calls 7\n"),
                    HasSubstr("\nsluice_in_flight_bytes 3\n"), HasSubstr("\nsluice_in_flight_calls 4\n"),
                    HasSubstr("\nsluice_budget_bytes 5\n"), HasSubstr("\nsluice_plan_batch_workers 6\n"),
                    HasSubstr("\nsluice_plan_wnd_max_packets 7\n"), HasSubstr("\nsluice_plan_slot_seconds 0.008\n"),
                    HasSubstr("\nsluice_link_capacity_bytes_per_second 12500000\n"),
                    HasSubstr("\nsluice_plan_goodput_bytes_per_second 11500000\n"),
                    HasSubstr("\nsluice_budget_floor_bytes 9\n"), HasSubstr("\nsluice_budget_limit_bytes 10\n"),
                    HasSubstr("\nsluice_budget_ceiling_bytes 11\n"),
                    HasSubstr("\nsluice_link_idle_seconds_total 1.5\n"), HasSubstr("\nsluice_callback_bytes 12\n")));
  now.queued_calls = 9;
  EXPECT_THAT(Text(), HasSubstr("\nsluice_queued_calls 9\n"));
  metrics_.SetGaugeSource(nullptr);
  EXPECT_THAT(Text(), Not(HasSubstr("sluice_queued_calls")));
}

TEST_F(LinkMetricsTest, ShowsWhatAScheduleWouldSave) {
  const LinkGauges now{.observation = {.responses = 64,
                                       .response_bytes = 655'360,
                                       .held_responses = 61,
                                       .held_bytes = 600'000,
                                       .lost_responses = 40,
                                       .busy_time = std::chrono::milliseconds(250),
                                       .lost_time = std::chrono::milliseconds(190)}};
  metrics_.SetGaugeSource([&now] { return now; });
  EXPECT_THAT(Text(), AllOf(HasSubstr("\nsluice_observed_responses_total 64\n"),
                            HasSubstr("\nsluice_observed_response_bytes_total 655360\n"),
                            HasSubstr("\nsluice_observed_held_responses_total 61\n"),
                            HasSubstr("\nsluice_observed_held_bytes_total 600000\n"),
                            HasSubstr("\nsluice_observed_lost_responses_total 40\n"),
                            HasSubstr("\nsluice_observed_busy_seconds_total 0.25\n"),
                            HasSubstr("\nsluice_observed_lost_seconds_total 0.19\n")));
  metrics_.SetGaugeSource(nullptr);
}

TEST_F(LinkMetricsTest, ShowsTheClassesOfALinkThatHasThem) {
  LinkGauges now;
  metrics_.SetGaugeSource([&now] { return now; });
  EXPECT_THAT(Text(), Not(HasSubstr("sluice_class_")));
  now.classes = {{.name = "queries", .queued_calls = 1, .received_bytes = 2}, {.name = "scan", .queued_calls = 3}};
  EXPECT_THAT(Text(), AllOf(HasSubstr("\nsluice_class_queued_calls{class=\"queries\"} 1\n"),
                            HasSubstr("\nsluice_class_queued_calls{class=\"scan\"} 3\n"),
                            HasSubstr("\nsluice_class_received_bytes_total{class=\"queries\"} 2\n"),
                            HasSubstr("\nsluice_class_received_bytes_total{class=\"scan\"} 0\n")));
}

TEST_F(LinkMetricsTest, ShowsRoundTripsWhereThereIsAConnection) {
  LinkGauges now;
  metrics_.SetGaugeSource([&now] { return now; });
  EXPECT_THAT(Text(), AllOf(HasSubstr("\nsluice_link_connections 0\n"), Not(HasSubstr("sluice_link_rtt_seconds"))));
  now = {.connections = 64, .min_rtt = absl::Milliseconds(2), .smoothed_rtt = absl::Milliseconds(4)};
  EXPECT_THAT(Text(), AllOf(HasSubstr("\nsluice_link_connections 64\n"),
                            HasSubstr("\nsluice_link_rtt_seconds{stat=\"min\"} 0.002\n"),
                            HasSubstr("\nsluice_link_rtt_seconds{stat=\"smoothed\"} 0.004\n")));
}

TEST_F(LinkMetricsTest, ASecondInstanceOnARegistryAddsToTheSameCounters) {
  LinkMetrics other(registry_);
  metrics_.CountCallRetry();
  other.CountCallRetry();
  EXPECT_THAT(Text(), HasSubstr("\nsluice_call_retries_total 2\n"));
}

}  // namespace
}  // namespace sluice
