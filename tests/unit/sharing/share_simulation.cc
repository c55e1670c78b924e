#include "tests/unit/sharing/share_simulation.h"

#include <algorithm>
#include <utility>

namespace sluice {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

namespace {

constexpr int64_t kBlockBytes = 200'000;

}  // namespace

ShareSimulation::ShareSimulation(Options options) : options_(std::move(options)), shares_(options_.shares, now_) {}

size_t ShareSimulation::AddProcess(double weight, int64_t answer_bytes) {
  Process& process = *processes_.emplace_back(std::make_unique<Process>());
  process.id = processes_.size();
  process.answer_bytes = answer_bytes;
  shares_.Join(now_, process.id, weight);
  Report(process);
  return processes_.size() - 1;
}

void ShareSimulation::SetBusy(size_t process, bool busy) {
  Process& changed = *processes_[process];
  if (busy && !changed.busy) StartBlock(changed);
  changed.busy = busy;
  if (!changed.stopped) AfterChange(changed);
}

void ShareSimulation::CallSlowWorker(size_t index, Duration patience) {
  Process& process = *processes_[index];
  process.thinking_bytes = process.answer_bytes;
  At(patience, [this, &process] {
    process.thinking_bytes = 0;
    if (!process.stopped) AfterChange(process);
  });
  if (!process.stopped) AfterChange(process);
}

void ShareSimulation::StartBlock(Process& process) {
  ++process.block;
  process.block_bytes = 0;
  process.block_since = now_;
}

// Uses the worst order: the process continues its work before it reads its messages.
void ShareSimulation::Continue(size_t index) {
  Process& process = *processes_[index];
  process.stopped = false;
  if (process.dead) return;
  Ask(process);
  for (const auto& event : std::exchange(process.on_wake, {})) event();
  Report(process);
}

void ShareSimulation::Kill(size_t index) {
  Process& process = *processes_[index];
  if (std::exchange(process.dead, true)) return;
  events_.emplace(LaterThan(process.last_arrival), [this, &process] {
    std::vector<ShareLease> leases;
    shares_.Leave(now_, process.id, leases);
    Deliver(leases);
  });
}

void ShareSimulation::SetBudget(int64_t bytes) {
  std::vector<ShareLease> leases;
  shares_.SetBudget(now_, bytes, leases);
  Deliver(leases);
}

void ShareSimulation::RunFor(Duration duration) {
  const TimePoint end = now_ + duration;
  while (!events_.empty() && events_.begin()->first <= end) {
    now_ = events_.begin()->first;
    const std::function<void()> event = std::move(events_.begin()->second);
    events_.erase(events_.begin());
    event();
  }
  now_ = end;
}

TimePoint ShareSimulation::LaterThan(TimePoint& last) {
  return last = std::max(last, now_ + options_.message_delay());
}

void ShareSimulation::Ask(Process& process) {
  while (process.busy && !process.dead && process.in_flight_bytes + process.answer_bytes <= LimitOf(process)) {
    const int64_t bytes = process.answer_bytes;
    process.in_flight_bytes += bytes;
    in_flight_bytes_ += bytes;
    most_in_flight_bytes_ = std::max(most_in_flight_bytes_, in_flight_bytes_);
    const auto on_wire =
        nanoseconds(static_cast<int64_t>(1e9 * static_cast<double>(bytes) / options_.bytes_per_second));
    port_free_at_ = std::max(port_free_at_, now_ + options_.rtt) + on_wire;
    events_.emplace(port_free_at_, [this, &process, bytes] {
      in_flight_bytes_ -= bytes;
      if (process.dead) return;
      if (process.stopped) return process.on_wake.push_back([this, &process, bytes] { Arrived(process, bytes); });
      Arrived(process, bytes);
    });
  }
}

void ShareSimulation::Arrived(Process& process, int64_t bytes) {
  process.in_flight_bytes -= bytes;
  process.received_bytes += bytes;
  process.block_bytes += bytes;
  if (process.block_bytes >= kBlockBytes) StartBlock(process);
  AfterChange(process);
}

// Reports at once under the conditions of IsUrgent.
void ShareSimulation::AfterChange(Process& process) {
  Ask(process);
  const bool turned = process.wants() != process.reported_wants;
  const bool drained =
      process.reported_in_flight_bytes > LimitOf(process) && process.in_flight_bytes <= LimitOf(process);
  const bool block_ended = options_.shares.mode == SharingMode::kFifo && process.block != process.reported_block;
  if (turned || drained || block_ended) Report(process);
}

void ShareSimulation::Report(Process& process) {
  if (process.dead || process.stopped) return;
  const nanoseconds period = process.wants() ? milliseconds(2) : nanoseconds(options_.shares.lease_time / 4);
  At(period, [this, &process, number = ++process.reports] {
    if (number == process.reports) Report(process);
  });
  process.reported_wants = process.wants();
  process.reported_block = process.block;
  process.reported_in_flight_bytes = process.in_flight_bytes;
  const ShareReport report{.acknowledged = process.acknowledged,
                           .limit_bytes = LimitOf(process),
                           .demand_bytes = process.in_flight_bytes + process.thinking_bytes +
                                           (process.busy ? 10 * options_.shares.budget_bytes : 0),
                           .in_flight_bytes = process.in_flight_bytes,
                           .need_bytes = process.busy ? process.answer_bytes : 0,
                           .received_bytes = process.received_bytes,
                           .oldest_block = process.busy ? process.block : 0,
                           .oldest_block_age = now_ - process.block_since};
  events_.emplace(LaterThan(process.last_arrival), [this, &process, report, sent_at = now_] {
    if (process.dead) return;
    report_sent_at_[process.id] = sent_at;
    std::vector<ShareLease> leases;
    shares_.Report(now_, process.id, report, leases);
    Deliver(leases);
  });
}

void ShareSimulation::Deliver(const std::vector<ShareLease>& leases) {
  for (const ShareLease& lease : leases) {
    Process& process = *processes_[lease.client - 1];
    const TimePoint until = report_sent_at_[lease.client] + options_.shares.lease_time;
    events_.emplace(LaterThan(process.last_delivery), [this, &process, lease, until] {
      if (process.dead) return;
      if (process.stopped) {
        return process.on_wake.push_back([this, &process, lease, until] { OnLease(process, lease, until); });
      }
      OnLease(process, lease, until);
    });
  }
  OnTimer();
}

void ShareSimulation::OnLease(Process& process, const ShareLease& lease, TimePoint until) {
  const bool smaller = lease.bytes < process.limit_bytes;
  process.limit_bytes = lease.bytes;
  process.until = until;
  process.acknowledged = lease.id;
  Ask(process);
  if (smaller) Report(process);
}

void ShareSimulation::OnTimer() {
  const TimePoint next = shares_.NextTimer();
  if (next >= timer_at_) return;
  timer_at_ = next;
  events_.emplace(std::max(next, now_), [this] {
    timer_at_ = TimePoint::max();
    std::vector<ShareLease> leases;
    shares_.OnTimer(now_, leases);
    Deliver(leases);
  });
}

}  // namespace sluice
