#include "lib/scheduling/worker_laps.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "lib/scheduling/saturating_add.h"

namespace sluice {
namespace {

// Hosts pause for some milliseconds, and this host does, too. So a lap of less than 10 ms is never long.
constexpr int kLongLapDrains = 10;
constexpr std::chrono::nanoseconds kMinLongLap = std::chrono::milliseconds(10);

}  // namespace

WorkerLaps::WorkerLaps(Budget& budget) : budget_(budget) {
  OnBudgetChanged();
}

void WorkerLaps::OnBudgetChanged() {
  // Use absl::Duration, which saturates: the drain time of an unscheduled link is near the maximum.
  const absl::Duration drains = kLongLapDrains * absl::FromChrono(budget_.drain_time());
  long_lap_ = std::max(absl::ToChronoNanoseconds(drains), kMinLongLap);
}

void WorkerLaps::Restart(QueuedWorker& worker, TimePoint now) {
  worker.share = WorkerShare();
  if (worker.bounded) worker.share.OnOwed(LinkAt(now), worker.owed_bytes, 0);
  Queue(worker);
  CountSlow(worker);
}

void WorkerLaps::Update(QueuedWorker& worker, int64_t more_owed_bytes, bool progress, TimePoint now) {
  if (!worker.bounded) return;
  if (more_owed_bytes == 0) return CountSlow(worker);
  const int64_t delivered = progress ? std::max<int64_t>(-more_owed_bytes, 0) : 0;
  const bool begins = worker.share.OnOwed(LinkAt(now), worker.owed_bytes, delivered);
  if (begins || !worker.share.owes()) Queue(worker);
  CountSlow(worker);
}

// The list is in the order in which laps began, so a lap that begins goes to the end.
void WorkerLaps::Queue(QueuedWorker& worker) {
  if (worker.LapHook::is_linked()) laps_.erase(laps_.iterator_to(worker));
  if (worker.share.owes()) laps_.push_back(worker);
}

void WorkerLaps::OnStall(QueuedWorker& worker, TimePoint now) {
  if (worker.bounded) worker.share.OnStall(LinkAt(now));
}

bool WorkerLaps::IsFull(QueuedWorker& worker, TimePoint now) {
  if (!worker.bounded) return false;
  const WorkerShare::Link link = LinkAt(now);
  Look(worker, link, false);
  const bool slow = worker.share.slow();
  if (slow && budget_.slow_are_full()) return true;
  return (slow ? worker.charged_bytes : worker.owed_bytes) >= worker.share.Bytes(link);
}

QueuedWorker* WorkerLaps::TakeLate(TimePoint now) {
  const WorkerShare::Link link = LinkAt(now);
  for (QueuedWorker& worker : laps_) {
    if (!worker.share.IsLong(link)) break;
    if (Look(worker, link, true)) return &worker;
  }
  return nullptr;
}

TimePoint WorkerLaps::next_late() const {
  return laps_.empty() ? TimePoint::max() : SaturatingAdd(laps_.front().share.lap_since(), long_lap_);
}

bool WorkerLaps::Look(QueuedWorker& worker, const WorkerShare::Link& link, bool wanted) {
  if (!worker.share.Look(link, wanted)) return false;
  ++late_laps_;
  Queue(worker);
  CountSlow(worker);
  return true;
}

void WorkerLaps::CountSlow(QueuedWorker& worker) {
  const int64_t slow = worker.share.slow() ? worker.charged_bytes : 0;
  budget_.ChargeSlow(slow - std::exchange(worker.slow_bytes, slow));
}

WorkerShare::Link WorkerLaps::LinkAt(TimePoint now) const {
  return {.now = now,
          .received_bytes = received_bytes_,
          .plan_bytes = budget_.plan_bytes(),
          .packet_bytes = budget_.packet_bytes(),
          .long_lap = long_lap_};
}

}  // namespace sluice
