#include "lib/link/link_metrics.h"

#include <chrono>
#include <string>
#include <utility>

#include "sluice/worker_fault.h"

#include "lib/telemetry/metric_families.h"

namespace sluice {
namespace {

template <class Number>
prometheus::MetricFamily Gauge(const char* name, const char* help, Number value) {
  return MakeFamily(prometheus::MetricType::Gauge, name, help, static_cast<double>(value));
}

prometheus::MetricFamily Policy(const LinkGauges& now) {
  std::vector<LabelledValue> values;
  for (const SchedulePolicy policy :
       {SchedulePolicy::kGrants, SchedulePolicy::kRolling, SchedulePolicy::kBatches, SchedulePolicy::kUnscheduled}) {
    values.emplace_back(std::string(SchedulePolicyName(policy)), now.policy == policy ? 1 : 0);
  }
  return MakeFamily(prometheus::MetricType::Gauge, "sluice_schedule_policy",
                    "1: the policy of the schedule; 0: the other policies.", "policy", values);
}

prometheus::MetricFamily FaultyWorkers(const LinkGauges& now) {
  std::vector<LabelledValue> values;
  for (int fault = 0; fault < kWorkerFaults; ++fault) {
    values.emplace_back(std::string(WorkerFaultName(static_cast<WorkerFault>(fault))), now.faulty_workers[fault]);
  }
  return MakeFamily(prometheus::MetricType::Gauge, "sluice_faulty_workers", "Workers that are at fault, by the fault.",
                    "fault", values);
}

prometheus::MetricFamily NamedFaults(const LinkGauges& now) {
  prometheus::MetricFamily family{
      "sluice_worker_fault", "Always 1: this worker has this fault. The first 20.", prometheus::MetricType::Gauge, {}};
  for (const auto& [address, fault] : now.worker_faults) {
    prometheus::ClientMetric& metric = family.metric.emplace_back();
    metric.label = {{"worker", address}, {"fault", std::string(WorkerFaultName(fault))}};
    metric.gauge.value = 1;
  }
  return family;
}

void AddClasses(const LinkGauges& now, std::vector<prometheus::MetricFamily>& families) {
  if (now.classes.empty()) return;
  std::vector<LabelledValue> queued_calls;
  std::vector<LabelledValue> received_bytes;
  for (const LinkGauges::Class& traffic_class : now.classes) {
    queued_calls.emplace_back(traffic_class.name, traffic_class.queued_calls);
    received_bytes.emplace_back(traffic_class.name, traffic_class.received_bytes);
  }
  families.push_back(MakeFamily(prometheus::MetricType::Gauge, "sluice_class_queued_calls",
                                "Calls that wait to be sent, by class of traffic.", "class", queued_calls));
  families.push_back(MakeFamily(prometheus::MetricType::Counter, "sluice_class_received_bytes_total",
                                "Bytes of responses that arrived over the link, headers included, by class of traffic.",
                                "class", received_bytes));
}

prometheus::MetricFamily Total(const char* name, const char* help, double value) {
  return MakeFamily(prometheus::MetricType::Counter, name, help, value);
}

void AddObservation(const LinkObservation& seen, std::vector<prometheus::MetricFamily>& families) {
  const auto seconds = [](std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); };
  families.insert(
      families.end(),
      {Total("sluice_observed_responses_total", "Unscheduled: responses that came.",
             static_cast<double>(seen.responses)),
       Total("sluice_observed_response_bytes_total", "Unscheduled: bytes of responses that came.",
             static_cast<double>(seen.response_bytes)),
       Total("sluice_observed_held_responses_total", "Unscheduled: responses that a schedule would have held.",
             static_cast<double>(seen.held_responses)),
       Total("sluice_observed_held_bytes_total",
             "Unscheduled: bytes of responses that exceeded the buffer of the port when they were requested.",
             static_cast<double>(seen.held_bytes)),
       Total("sluice_observed_lost_responses_total",
             "Unscheduled: responses that waited for a TCP retransmission timeout after the buffer was exceeded.",
             static_cast<double>(seen.lost_responses)),
       Total("sluice_observed_busy_seconds_total", "Unscheduled: time in which responses were on their way.",
             seconds(seen.busy_time)),
       Total("sluice_observed_lost_seconds_total",
             "Unscheduled: the part of the busy time that a schedule would have saved.", seconds(seen.lost_time))});
}

}  // namespace

LinkMetrics::LinkMetrics(prometheus::Registry& registry)
    : registry_(registry),
      goodput_bytes_(MakeCounters<2>(registry, "sluice_goodput_bytes_total",
                                     "Payload bytes handed to the application, by the kind of worker that sent them.",
                                     "worker_kind", {"primary", "replica"})),
      calls_(MakeCounters<6>(registry, "sluice_calls_total", "Calls that have ended.", "outcome",
                             {"ok", "rpc_error", "rpc_deadline", "cancelled", "corrupt", "expired"})),
      timeouts_(
          MakeCounters<4>(registry, "sluice_timeouts_total",
                          "Calls that missed a deadline of the RPC or of the queue, whose granted response stalled, or "
                          "whose response waited for a TCP retransmission timeout.",
                          "kind", {"rpc_deadline", "queue_deadline", "stall", "tcp_rto"})),
      inferred_losses_(MakeCounters<3>(registry, "sluice_inferred_losses_total",
                                       "Responses with a loss on the way, as inferred from this side.", "evidence",
                                       {"out_of_order", "silence", "pause"})),
      out_of_order_packets_(MakeCounter(registry, "sluice_link_out_of_order_packets_total",
                                        "Packets from workers that arrived out of order.")),
      worker_reports_(
          MakeCounters<2>(registry, "sluice_worker_reported_tcp_total",
                          "TCP events that workers of Sluice reported about their connections to this aggregator.",
                          "event", {"retransmit", "rto"})),
      budget_changes_(MakeCounters<4>(registry, "sluice_budget_decisions_total", "Changes of the adaptive budget.",
                                      "decision", {"grow", "probe", "back_off", "give_back"})),
      call_retries_(MakeCounter(registry, "sluice_call_retries_total", "Calls that were made again.")),
      callback_holds_(MakeCounter(registry, "sluice_callback_holds_total",
                                  "Responses that waited at their workers because callback_memory_bytes was used up.")),
      hedges_(MakeCounters<3>(registry, "sluice_hedges_total", "Rival requests to replicas of slow workers.", "outcome",
                              {"won", "lost", "refused"})),
      queue_refusals_(MakeCounters<3>(registry, "sluice_queue_refusals_total",
                                      "Calls that the queue refused, or ended before they were sent.", "reason",
                                      {"full", "worker", "timeout"})),
      ejections_(MakeCounters<5>(registry, "sluice_ejections_total",
                                 "Ejections of workers, which get no call that another worker can answer.", "reason",
                                 {"errors", "no_response", "failure_percentage", "latency", "probe"})),
      blocks_(MakeCounters<6>(registry, "sluice_blocks_total", "Data blocks that have ended.", "outcome",
                              {"complete", "partial", "failed", "cancelled", "deadline", "refused"})),
      block_coverage_(MakeHistogram(registry, "sluice_block_coverage_ratio", "Share of a block's bytes that arrived.",
                                    {0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1})),
      block_seconds_(MakeHistogram(registry, "sluice_block_seconds", "Time of a block from submission to end.",
                                   TransferTimeBuckets())),
      queue_wait_seconds_(MakeHistogram(registry, "sluice_queue_wait_seconds",
                                        "Time that a call waited for the schedule before its request was sent.",
                                        TransferTimeBuckets())),
      ready_seconds_(MakeHistogram(registry, "sluice_ready_seconds",
                                   "Time from sending a request until its response was ready at the worker.",
                                   TransferTimeBuckets())),
      transfer_seconds_(MakeHistogram(
          registry, "sluice_call_transfer_seconds",
          "Time of a call from its first grant to its end. If the grant left with the request, from the request.",
          TransferTimeBuckets())),
      timer_lateness_(MakeHistogram(registry, "sluice_timer_lateness_seconds",
                                    "How late timers of the schedule fired: measured jitter.",
                                    {1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.05, 0.1})),
      reconnect_seconds_(MakeHistogram(registry, "sluice_worker_reconnect_seconds",
                                       "Time from the loss of the connection to a worker until the next connection.",
                                       {0.5, 1, 2, 3, 5, 10, 20, 30, 60, 120, 300, 600})),
      worker_lookup_failures_(MakeCounter(registry, "sluice_worker_lookup_failures_total",
                                          "Failed look-ups of names that stand for workers.")),
      invariant_breaches_(MakeBreachCounter(registry)) {
  MakeBuildInfo(registry);
}

TunnelMetrics& LinkMetrics::Tunnels(const std::string& workers) {
  return tunnels_.try_emplace(workers, registry_, workers).first->second;
}

void LinkMetrics::SetGaugeSource(std::function<LinkGauges()> source) {
  const std::lock_guard<std::mutex> lock(mutex_);
  gauge_source_ = std::move(source);
}

std::vector<prometheus::MetricFamily> LinkMetrics::Collect() const {
  // Hold the lock while the source runs, so that SetGaugeSource waits for it.
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!gauge_source_) return {};
  const LinkGauges now = gauge_source_();
  std::vector<prometheus::MetricFamily> families{
      Gauge("sluice_queued_calls", "Calls that wait to be sent.", now.queued_calls),
      Gauge("sluice_stream_waiting_calls",
            "Calls that wait to be sent because their worker is connected and allows no more streams.",
            now.stream_waiting_calls),
      Gauge("sluice_queued_blocks", "Data blocks that have not ended.", now.queued_blocks),
      MakeFamily(prometheus::MetricType::Counter, "sluice_late_blocks_total",
                 "Data blocks that could not make their deadline any more, and gave way to others.",
                 static_cast<double>(now.late_blocks)),
      Gauge("sluice_in_flight_bytes", "Bytes of the budget that calls in flight use.", now.in_flight_bytes),
      Gauge("sluice_in_flight_calls", "Calls whose response may come and has not ended.", now.in_flight_calls),
      Gauge("sluice_ungranted_calls", "Calls whose request was sent and that have no grant.", now.ungranted_calls),
      Gauge("sluice_ready_bytes", "Bytes of responses that are ready at workers and wait for a grant.",
            now.ready_bytes),
      Gauge("sluice_budget_bytes", "Bytes that may be in flight towards this aggregator.", now.budget_bytes),
      Gauge("sluice_plan_batch_workers", "n: workers that may respond at once.", now.plan_batch_workers),
      Gauge("sluice_plan_wnd_max_packets", "wnd_max: packets that one worker can have in the buffer.",
            now.plan_wnd_max_packets),
      Gauge("sluice_plan_slot_seconds", "T~: length of the slot of one batch.", absl::ToDoubleSeconds(now.plan_slot)),
      Gauge("sluice_link_capacity_bytes_per_second", "C: capacity of the bottleneck link, frames included.",
            now.link_capacity_bytes_per_second),
      Gauge("sluice_link_measured_capacity_bytes_per_second",
            "Highest rate at which the link received while calls waited, frames included; 0: unknown.",
            now.measured_capacity_bytes_per_second),
      Gauge("sluice_link_measured_rtt_seconds", "Smallest round trip of TCP of the link; 0: unknown.",
            now.measured_rtt < absl::InfiniteDuration() ? absl::ToDoubleSeconds(now.measured_rtt) : 0),
      Gauge("sluice_link_profile_rtt_seconds", "R: round trip of the link profile, without queues.",
            absl::ToDoubleSeconds(now.profile_rtt)),
      Gauge("sluice_plan_goodput_bytes_per_second", "Payload that the model expects of the plan in force.",
            now.plan_goodput_bytes_per_second),
      Gauge("sluice_budget_floor_bytes", "The adaptive budget is never smaller.", now.budget_floor_bytes),
      Gauge("sluice_budget_limit_bytes", "The adaptive budget is never larger. Equal to the floor: it is fixed.",
            now.budget_limit_bytes),
      Gauge("sluice_budget_ceiling_bytes", "The budget at which responses were last lost; 0: no loss is remembered.",
            now.budget_ceiling_bytes),
      Total("sluice_link_idle_seconds_total",
            "Time in which calls waited for the budget, nothing was lost, and the link carried nothing.",
            absl::ToDoubleSeconds(absl::FromChrono(now.idle_time))),
      Gauge("sluice_callback_bytes", "Bytes of responses that wait for the application's merge.", now.callback_bytes),
      Gauge("sluice_workers_wanted", "Workers in the list.", now.workers_wanted),
      Gauge("sluice_workers_connected", "Workers in the list that have a connection.", now.workers_connected),
      Gauge("sluice_link_connections", "TCP connections to workers.", now.connections),
  };
  if (now.leased.has_value()) {
    families.push_back(Gauge("sluice_budget_leased",
                             "1: the budget is a lease of a link that several processes share; 0: no daemon leases it.",
                             static_cast<int>(*now.leased)));
  }
  families.push_back(Policy(now));
  AddObservation(now.observation, families);
  AddClasses(now, families);
  families.push_back(
      MakeFamily(prometheus::MetricType::Gauge, "sluice_link_profile_contradicted",
                 "1: the link contradicts this fact of its profile.", "fact",
                 {{"capacity", now.capacity_contradicted ? 1 : 0}, {"rtt", now.rtt_contradicted ? 1 : 0}}));
  families.push_back(FaultyWorkers(now));
  if (!now.worker_faults.empty()) families.push_back(NamedFaults(now));
  if (now.connections > 0) {
    families.push_back(MakeFamily(
        prometheus::MetricType::Gauge, "sluice_link_rtt_seconds",
        "Round trips of the connections to workers: the smallest ever of any that is open, "
        "and the mean of the smoothed.",
        "stat", {{"min", absl::ToDoubleSeconds(now.min_rtt)}, {"smoothed", absl::ToDoubleSeconds(now.smoothed_rtt)}}));
  }
  return families;
}

}  // namespace sluice
