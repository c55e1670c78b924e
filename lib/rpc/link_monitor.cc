#include "lib/rpc/link_monitor.h"

#include <algorithm>
#include <utility>

#include "sluice/plan.h"

#include "lib/rpc/clock.h"

namespace sluice {
namespace {

std::optional<BudgetChangeKind> KindOf(BudgetDecision decision) {
  switch (decision) {
    case BudgetDecision::kHold:
      return std::nullopt;
    case BudgetDecision::kGrow:
      return BudgetChangeKind::kGrow;
    case BudgetDecision::kProbe:
      return BudgetChangeKind::kProbe;
    case BudgetDecision::kBackOff:
      return BudgetChangeKind::kBackOff;
    case BudgetDecision::kGiveBack:
      return BudgetChangeKind::kGiveBack;
  }
  return std::nullopt;
}

}  // namespace

LinkMonitor::LinkMonitor(LinkDriver& driver, const BudgetBounds& bounds, bool watch, OnBudgetChange on_change)
    : driver_(driver), on_change_(std::move(on_change)), bounds_(bounds), budget_(StartBudget(bounds, Now())) {
  if (!watch) {
    status_ = absl::FailedPreconditionError("watch_connections is off");
    return;
  }
  auto sampler = TcpSampler::Start(
      driver_.io_context(),
      {.wanted = [this] { return Active(); },
       .on_sample = [this](TimePoint now, absl::Span<const TcpSocket> sockets) { OnSample(now, sockets); }});
  status_ = sampler.status();
  if (sampler.ok()) sampler_ = *std::move(sampler);
}

LinkMonitor::~LinkMonitor() = default;

absl::Status LinkMonitor::FixBudget(int64_t budget_bytes) {
  absl::Status status = driver_.SetBudget(budget_bytes);
  if (!status.ok()) return status;
  {
    absl::MutexLock lock(&mutex_);
    bounds_.floor_bytes = bounds_.start_bytes = bounds_.reference_bytes = bounds_.limit_bytes = budget_bytes;
    budget_ = StartBudget(bounds_, Now());
  }
  ApplyBudget();
  return absl::OkStatus();
}

void LinkMonitor::Reconfigure(const BudgetBounds& bounds) {
  {
    absl::MutexLock lock(&mutex_);
    if (bounds == bounds_) return;
    const bool same_start =
        bounds.start_bytes == bounds_.start_bytes && bounds.reference_bytes == bounds_.reference_bytes;
    const BudgetState before = budget_;
    bounds_ = bounds;
    budget_ = StartBudget(bounds_, Now());
    // What was learned of the port is still true; where its buffer is another one, nothing is.
    if (same_start) {
      budget_.budget_bytes = std::clamp(before.budget_bytes, bounds_.floor_bytes, bounds_.limit_bytes);
      budget_.ceiling_bytes = before.ceiling_bytes;
      budget_.ceiling_since = before.ceiling_since;
    }
  }
  ApplyBudget();
}

// Not under the lock: calls that end by it may ask the link for anything. Whoever comes last with what is no longer the
// budget applies the right one.
void LinkMonitor::ApplyBudget() {
  int64_t applied_bytes = 0;
  while (true) {
    int64_t budget_bytes = 0;
    {
      absl::MutexLock lock(&mutex_);
      budget_bytes = budget_.budget_bytes;
    }
    if (budget_bytes == applied_bytes) return;
    driver_.SetBudget(budget_bytes).IgnoreError();
    applied_bytes = budget_bytes;
  }
}

// A link without calls is left alone, but for one look after the last of them.
bool LinkMonitor::Active() {
  const ScheduleState state = driver_.State();
  const bool ended = std::exchange(ended_before_look_, state.ended_calls) != state.ended_calls;
  return ended || state.ended_calls < state.submitted_calls;
}

void LinkMonitor::OnSample(TimePoint now, absl::Span<const TcpSocket> sockets) {
  const LinkSight sight = driver_.workers().Look(now, sockets);
  CountSight(sight);
  const ScheduleState schedule = driver_.State();
  const LinkProfile profile = driver_.options().profile;
  const double frame_share =
      static_cast<double>(profile.frame_bytes) / static_cast<double>(profile.packet_payload_bytes);
  const BudgetObservation seen{
      .now = now,
      .received_frame_bytes = static_cast<int64_t>(static_cast<double>(sight.received_bytes) * frame_share),
      .answers = schedule.ended_calls - std::exchange(ended_calls_, schedule.ended_calls),
      .silent_losses = sight.rto_waits,
      .out_of_order_losses = sight.losses_out_of_order,
      .backlogged = schedule.waiting_calls + schedule.ungranted_calls > 0};
  BudgetStep step;
  int64_t before_bytes = 0;
  {
    absl::MutexLock lock(&mutex_);
    sight_ = sight;
    before_bytes = budget_.budget_bytes;
    step = Decide(bounds_, budget_, seen);
    budget_ = step.state;
  }
  const std::optional<BudgetChangeKind> kind = KindOf(step.decision);
  if (!kind.has_value()) return;
  ApplyBudget();
  driver_.metrics().CountBudgetChange(*kind);
  if (on_change_) on_change_(before_bytes, step);
}

void LinkMonitor::CountSight(const LinkSight& sight) {
  AggregatorMetrics& metrics = driver_.metrics();
  metrics.CountOutOfOrderPackets(sight.out_of_order_packets);
  metrics.CountInferredLosses(LossEvidence::kOutOfOrder, sight.losses_out_of_order);
  metrics.CountInferredLosses(LossEvidence::kSilence, sight.losses_silent);
  metrics.CountTimeouts(TimeoutKind::kTcpRto, sight.rto_waits);
}

void LinkMonitor::FillGauges(AggregatorGauges& gauges) const {
  absl::MutexLock lock(&mutex_);
  gauges.budget_floor_bytes = bounds_.floor_bytes;
  gauges.budget_limit_bytes = bounds_.limit_bytes;
  gauges.budget_ceiling_bytes = budget_.ceiling_bytes;
  gauges.connections = sight_.connections;
  gauges.min_rtt = sight_.min_rtt.value_or(absl::InfiniteDuration());
  gauges.smoothed_rtt = sight_.smoothed_rtt.value_or(absl::InfiniteDuration());
}

}  // namespace sluice
