#include "lib/link/link_monitor.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

// The minimum time from the start of a look to the start of the next.
constexpr std::chrono::milliseconds kPeriod(100);
// The number of workers whose sockets one turn looks at: getsockopt takes 1 to 1.5 us each, and the link grants nothing
// during that time.
constexpr size_t kSlice = 100;
// The minimum time from one slice to the next. A slower slice is followed by a longer pause, so looking takes at most a
// thirtieth of the thread's time, regardless of the number of connections.
constexpr std::chrono::milliseconds kSlicePause(1);
constexpr int kPauseFactor = 30;
constexpr std::chrono::seconds kFaultsPeriod(1);
// If a rack dies, the number of faults is more useful than a thousand time series.
constexpr size_t kMaxNamed = 20;

}  // namespace

LinkMonitor::LinkMonitor(LinkLoop& loop, const BudgetBounds& bounds, bool watch, OnBudgetChange on_change,
                         OnWorkerFaults on_faults, OnProfileMismatch on_mismatch)
    : loop_(loop),
      on_change_(std::move(on_change)),
      on_faults_(std::move(on_faults)),
      on_mismatch_(std::move(on_mismatch)),
      bounds_(bounds),
      budget_(StartBudget(bounds, loop.now())),
      observed_until_(loop.now()) {
  if (!watch) return;
  LookLater(loop.now() + kPeriod);
  LookForFaults();
}

LinkMonitor::~LinkMonitor() {
  loop_.timers().Clear(timer_);
  loop_.timers().Clear(faults_timer_);
}

absl::Status LinkMonitor::FixBudget(int64_t budget_bytes) {
  if (absl::Status status = loop_.SetBudget(budget_bytes); !status.ok()) return status;
  bounds_.floor_bytes = bounds_.start_bytes = bounds_.reference_bytes = bounds_.limit_bytes = budget_bytes;
  budget_ = StartBudget(bounds_, loop_.now());
  return absl::OkStatus();
}

void LinkMonitor::Reconfigure(const BudgetBounds& bounds) {
  if (bounds == bounds_) return;
  const bool same_start =
      bounds.start_bytes == bounds_.start_bytes && bounds.reference_bytes == bounds_.reference_bytes;
  const BudgetState before = budget_;
  bounds_ = bounds;
  budget_ = StartBudget(bounds_, loop_.now());
  // The knowledge of the port remains valid, unless its buffer has changed.
  if (same_start) {
    budget_.budget_bytes = std::clamp(before.budget_bytes, bounds_.floor_bytes, bounds_.limit_bytes);
    budget_.ceiling_bytes = before.ceiling_bytes;
    budget_.ceiling_since = before.ceiling_since;
  }
  ApplyBudget();
}

void LinkMonitor::ApplyBudget() {
  loop_.SetBudget(budget_.budget_bytes).IgnoreError();  // the bounds were validated
}

void LinkMonitor::LookLater(TimePoint when) {
  timer_ = loop_.timers().Set(when, [this] { Look(); });
}

void LinkMonitor::Look() {
  look_began_ = loop_.now();
  if (!Active()) {
    observed_until_ = look_began_;
    return LookLater(look_began_ + kPeriod);
  }
  loop_.worker_table().BeginLook(look_began_, budget_.settle_until, budget_.counted_since);
  LookAtSlice();
}

void LinkMonitor::LookAtSlice() {
  const TimePoint began = loop_.now();
  WorkerPool::TcpSlice slice = loop_.workers().TcpSockets(last_looked_at_, kSlice);
  loop_.worker_table().LookAt(began, slice.sockets);
  last_looked_at_ = std::move(slice.last);
  if (!last_looked_at_.has_value()) OnSight(began, loop_.worker_table().EndLook());
  const TimePoint now = loop_.now();
  const TimePoint next = now + std::max<TimePoint::duration>(kSlicePause, kPauseFactor * (now - began));
  if (!last_looked_at_.has_value()) return LookLater(std::max(look_began_ + kPeriod, next));
  timer_ = loop_.timers().Set(next, [this] { LookAtSlice(); });
}

void LinkMonitor::LookForFaults() {
  const LinkSchedule& schedule = loop_.schedule();
  WorkerTable& workers = loop_.worker_table();
  const std::vector<WorkerFaultChange> changes =
      faults_.Look(loop_.now(), workers.TakeFaultSights([&schedule](uint32_t worker) { return schedule.Load(worker); }),
                   [&workers](const std::string& address) { return workers.IsWanted(address); });
  if (!changes.empty() && on_faults_) on_faults_(changes);
  faults_timer_ = loop_.timers().Set(loop_.now() + kFaultsPeriod, [this] { LookForFaults(); });
}

// Returns true while calls exist, and once more after the last call has ended. A turn of a tunnel may end before its
// loss shows.
bool LinkMonitor::Active() {
  const ScheduleState state = loop_.schedule().State();
  const bool ended = std::exchange(ended_before_look_, state.ended_calls) != state.ended_calls;
  return ended || state.ended_calls < state.submitted_calls || loop_.workers().watches_tunnels();
}

void LinkMonitor::OnSight(TimePoint now, const LinkSight& sight) {
  CountSight(sight);
  if (!sight.lossy_now.empty()) loop_.schedule_run().OnSilence(sight.lossy_now);
  sight_ = sight;
  const ScheduleState schedule = loop_.schedule().State();
  const int64_t payload_bytes = loop_.schedule().options().profile.packet_payload_bytes;
  const int64_t answers = schedule.ended_calls - std::exchange(ended_calls_, schedule.ended_calls);
  const BudgetObservation seen{
      .now = now,
      .elapsed = now - std::exchange(observed_until_, now),
      .answers = answers,
      .received_bytes = static_cast<int64_t>(sight.received_bytes),
      .packets = answers + static_cast<int64_t>(sight.received_bytes) / payload_bytes,
      .active_workers = sight.active_workers,
      .lossy_workers = sight.lossy_workers,
      .rto_waits = sight.rto_waits,
      .out_of_order_losses = sight.losses_out_of_order,
      .worst_out_of_order_losses = sight.worst_out_of_order,
      .backlogged_time = schedule.backlogged_time - std::exchange(backlogged_time_, schedule.backlogged_time),
      .backlogged_bytes = schedule.backlogged_bytes - std::exchange(backlogged_bytes_, schedule.backlogged_bytes)};
  // If nothing is lost, this is time that the schedule has cost.
  const bool lost = sight.rto_waits > 0 || sight.lossy_workers > 0 || sight.losses_out_of_order > 0;
  const std::chrono::nanoseconds busy_time = absl::ToChronoNanoseconds(
      absl::Seconds(static_cast<double>(seen.backlogged_bytes) / bounds_.capacity_bytes_per_second));
  if (!lost && busy_time < seen.backlogged_time) idle_time_ += seen.backlogged_time - busy_time;
  CheckProfile(schedule, seen);
  const int64_t before_bytes = budget_.budget_bytes;
  const BudgetStep step = Decide(bounds_, budget_, seen);
  budget_ = step.state;
  if (step.decision == BudgetDecision::kHold) return;
  ApplyBudget();
  loop_.metrics().CountBudgetChange(step.decision);
  if (on_change_) {
    on_change_({.before_bytes = before_bytes,
                .after_bytes = budget_.budget_bytes,
                .ceiling_bytes = budget_.ceiling_bytes,
                .decision = BudgetDecisionName(step.decision),
                .reason = step.reason});
  }
}

void LinkMonitor::CheckProfile(const ScheduleState& schedule, const BudgetObservation& seen) {
  const int64_t budget_bytes = schedule.budget_bytes == schedule.plan_bytes ? schedule.budget_bytes : 0;
  const LinkProfile& profile = loop_.schedule().options().profile;
  for (const ProfileMismatch& found : profile_check_.Observe(profile, seen, budget_bytes, sight_.min_rtt)) {
    if (on_mismatch_) on_mismatch_(found);
  }
}

void LinkMonitor::CountSight(const LinkSight& sight) {
  LinkMetrics& metrics = loop_.metrics();
  metrics.CountOutOfOrderPackets(sight.out_of_order_packets);
  metrics.CountInferredLosses(LossEvidence::kOutOfOrder, sight.losses_out_of_order);
  metrics.CountInferredLosses(LossEvidence::kSilence, sight.losses_silent);
  metrics.CountInferredLosses(LossEvidence::kPause, sight.losses_paused);
  metrics.CountTimeouts(TimeoutKind::kTcpRto, sight.rto_waits);
}

void LinkMonitor::FillGauges(LinkGauges& gauges) const {
  gauges.budget_floor_bytes = bounds_.floor_bytes;
  gauges.budget_limit_bytes = bounds_.limit_bytes;
  gauges.budget_ceiling_bytes = budget_.ceiling_bytes;
  gauges.idle_time = idle_time_;
  faults_.ForEach([&gauges](const std::string& address, WorkerFault fault) {
    ++gauges.faulty_workers[static_cast<size_t>(fault)];
    if (gauges.worker_faults.size() < kMaxNamed) gauges.worker_faults.emplace_back(address, fault);
  });
  gauges.measured_capacity_bytes_per_second = profile_check_.capacity_bytes_per_second();
  gauges.measured_rtt = profile_check_.rtt();
  gauges.capacity_contradicted = profile_check_.contradicts_capacity();
  gauges.rtt_contradicted = profile_check_.contradicts_rtt();
  gauges.connections = sight_.connections;
  gauges.min_rtt = sight_.min_rtt.value_or(absl::InfiniteDuration());
  gauges.smoothed_rtt = sight_.smoothed_rtt.value_or(absl::InfiniteDuration());
}

}  // namespace sluice
