#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sluice/schedule.h"
#include "sluice/worker_fault.h"

#include "absl/time/time.h"
#include "lib/link/tunnel_metrics.h"
#include "lib/scheduling/budget_control.h"
#include "lib/scheduling/link_observer.h"
#include "prometheus/collectable.h"
#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "prometheus/metric_family.h"
#include "prometheus/registry.h"

namespace sluice {

// Label values, in the order of the enumerators; see link_metrics.cc and docs/reference/metrics.md.
enum class WorkerKind { kPrimary, kReplica };
enum class CallOutcome { kOk, kRpcError, kRpcDeadline, kCancelled, kCorrupt, kExpired };
enum class TimeoutKind { kRpcDeadline, kQueueDeadline, kStall, kTcpRto };
enum class LossEvidence { kOutOfOrder, kSilence, kPause };
enum class WorkerReport { kRetransmit, kRto };
enum class HedgeOutcome { kWon, kLost, kRefused };
enum class QueueRefusal { kFull, kWorker, kTimeout };
enum class EjectionReason { kErrors, kNoResponse, kFailurePercentage, kLatency, kProbe };
enum class BlockOutcome { kComplete, kPartial, kFailed, kCancelled, kDeadline, kRefused };

// The values of a link's gauges: the state of its schedule and the plan in force.
struct LinkGauges {
  int64_t queued_calls = 0;
  int64_t stream_waiting_calls = 0;
  int64_t queued_blocks = 0;
  int64_t late_blocks = 0;  // since the start
  int64_t in_flight_bytes = 0;
  int64_t in_flight_calls = 0;
  int64_t ungranted_calls = 0;
  int64_t ready_bytes = 0;
  int64_t budget_bytes = 0;
  int64_t plan_batch_workers = 0;    // n
  int64_t plan_wnd_max_packets = 0;  // wnd_max
  absl::Duration plan_slot;          // T~
  double plan_goodput_bytes_per_second = 0;
  double link_capacity_bytes_per_second = 0;
  absl::Duration profile_rtt;
  SchedulePolicy policy = SchedulePolicy::kGrants;

  double measured_capacity_bytes_per_second = 0;  // 0: unknown
  absl::Duration measured_rtt = absl::InfiniteDuration();
  bool capacity_contradicted = false;
  bool rtt_contradicted = false;

  int64_t budget_floor_bytes = 0;
  int64_t budget_limit_bytes = 0;
  int64_t budget_ceiling_bytes = 0;  // 0 if no ceiling is remembered
  std::chrono::nanoseconds idle_time{0};
  std::optional<bool> leased;  // whether the budget is a lease now; empty if the link is not shared

  struct Class {
    std::string name;
    int64_t queued_calls = 0;
    int64_t received_bytes = 0;
  };
  std::vector<Class> classes;  // empty: the link has one class

  LinkObservation observation;

  int64_t callback_bytes = 0;  // responses that wait for the application's merge

  int64_t workers_wanted = 0;
  int64_t workers_connected = 0;

  std::array<int64_t, kWorkerFaults> faulty_workers{};             // by fault
  std::vector<std::pair<std::string, WorkerFault>> worker_faults;  // address and fault of the first 20

  // Connections to workers; times are infinite if there is no connection.
  int64_t connections = 0;
  absl::Duration min_rtt = absl::InfiniteDuration();
  absl::Duration smoothed_rtt = absl::InfiniteDuration();
};

// The metrics of the requesting side. There is one for each link. Thread-safe.
//
// Counters and histograms live in `registry`, and every handle is resolved once. Counting is one atomic addition.
// Observing takes the mutex of the histogram, so it happens once per call and not under another lock. A second instance
// on the same registry adds to the same counters. The registry must outlive the metrics.
//
// Gauges mirror the schedule. Collect reads them at each scrape; events do not push them. They therefore cost calls
// nothing, and all values of one scrape belong to one moment. They are not in the registry, so scrape both:
// {&registry, &metrics}. Rejected: prometheus::Gauge members updated by a timer, which are always late.
class LinkMetrics : public prometheus::Collectable {
 public:
  explicit LinkMetrics(prometheus::Registry& registry);

  // Counts payload bytes handed to the application, by the kind of the worker that sent them.
  void AddGoodput(uint64_t bytes, WorkerKind kind) { Get(goodput_bytes_, kind).Increment(static_cast<double>(bytes)); }
  void CountCall(CallOutcome outcome) { Get(calls_, outcome).Increment(); }
  void CountTimeout(TimeoutKind kind) { Get(timeouts_, kind).Increment(); }
  void CountTimeouts(TimeoutKind kind, int64_t timeouts) {
    Get(timeouts_, kind).Increment(static_cast<double>(timeouts));
  }
  void CountInferredLosses(LossEvidence evidence, int64_t losses) {
    Get(inferred_losses_, evidence).Increment(static_cast<double>(losses));
  }
  void CountOutOfOrderPackets(uint64_t packets) { out_of_order_packets_.Increment(static_cast<double>(packets)); }
  // Counts TCP events that sluice-workers reported of their connections to this aggregator.
  void CountWorkerReport(WorkerReport event, uint64_t events) {
    Get(worker_reports_, event).Increment(static_cast<double>(events));
  }
  // `decision` is not kHold.
  void CountBudgetChange(BudgetDecision decision) { Get(budget_changes_, decision).Increment(); }
  void CountCallRetry() { call_retries_.Increment(); }
  // Counts a response that waits at its worker for room in the callback memory.
  void CountCallbackHold() { callback_holds_.Increment(); }
  void CountHedges(HedgeOutcome outcome, size_t hedges) {
    Get(hedges_, outcome).Increment(static_cast<double>(hedges));
  }
  // Counts calls that the queue refused or ended, by the limit that they met.
  void CountQueueRefusals(QueueRefusal reason, size_t calls) {
    Get(queue_refusals_, reason).Increment(static_cast<double>(calls));
  }
  void CountEjection(EjectionReason reason) { Get(ejections_, reason).Increment(); }
  void CountBlock(BlockOutcome outcome) { Get(blocks_, outcome).Increment(); }

  // Takes the time of a block from submission to end, and the share of its bytes that arrived, 0 to 1.
  void ObserveBlock(absl::Duration elapsed, double coverage) {
    block_seconds_.Observe(absl::ToDoubleSeconds(elapsed));
    block_coverage_.Observe(coverage);
  }
  void ObserveQueueWait(absl::Duration wait) { queue_wait_seconds_.Observe(absl::ToDoubleSeconds(wait)); }
  void ObserveTransfer(absl::Duration elapsed) { transfer_seconds_.Observe(absl::ToDoubleSeconds(elapsed)); }
  void ObserveReady(absl::Duration elapsed) { ready_seconds_.Observe(absl::ToDoubleSeconds(elapsed)); }
  // Takes the time from the loss of the connection to a worker until the next connection.
  void ObserveReconnect(absl::Duration elapsed) { reconnect_seconds_.Observe(absl::ToDoubleSeconds(elapsed)); }
  void CountBreaches(int64_t breaches) { invariant_breaches_.Increment(static_cast<double>(breaches)); }
  // Counts a failed look-up of a name of workers.
  void CountWorkerLookupFailure() { worker_lookup_failures_.Increment(); }
  // Takes the delay with which a timer of the schedule fired: the measured jitter (d_max) of the link profile.
  void ObserveTimerLateness(absl::Duration lateness) { timer_lateness_.Observe(absl::ToDoubleSeconds(lateness)); }

  // The metrics of the byte tunnels to the workers of one pattern. Used on the link's thread only.
  TunnelMetrics& Tunnels(const std::string& workers);

  // Sets the source of the gauges; null removes it. After it returns, the previous source is not called. An owner must
  // therefore set null before its source is destroyed. The source must not call this object.
  void SetGaugeSource(std::function<LinkGauges()> source);

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  template <size_t kCount, class Enum>
  static prometheus::Counter& Get(const std::array<prometheus::Counter*, kCount>& counters, Enum value) {
    return *counters[static_cast<size_t>(value)];
  }

  prometheus::Registry& registry_;
  const std::array<prometheus::Counter*, 2> goodput_bytes_;
  const std::array<prometheus::Counter*, 6> calls_;
  const std::array<prometheus::Counter*, 4> timeouts_;
  const std::array<prometheus::Counter*, 3> inferred_losses_;
  prometheus::Counter& out_of_order_packets_;
  const std::array<prometheus::Counter*, 2> worker_reports_;
  const std::array<prometheus::Counter*, 4> budget_changes_;
  prometheus::Counter& call_retries_;
  prometheus::Counter& callback_holds_;
  const std::array<prometheus::Counter*, 3> hedges_;
  const std::array<prometheus::Counter*, 3> queue_refusals_;
  const std::array<prometheus::Counter*, 5> ejections_;
  const std::array<prometheus::Counter*, 6> blocks_;
  prometheus::Histogram& block_coverage_;
  prometheus::Histogram& block_seconds_;
  prometheus::Histogram& queue_wait_seconds_;
  prometheus::Histogram& ready_seconds_;
  prometheus::Histogram& transfer_seconds_;
  prometheus::Histogram& timer_lateness_;
  prometheus::Histogram& reconnect_seconds_;
  prometheus::Counter& worker_lookup_failures_;
  prometheus::Counter& invariant_breaches_;
  std::map<std::string, TunnelMetrics> tunnels_;  // by the pattern of their workers

  mutable std::mutex mutex_;                  // not absl::Mutex: ThreadSanitizer cannot see into Debian's build of it
  std::function<LinkGauges()> gauge_source_;  // guarded by mutex_
};

}  // namespace sluice
