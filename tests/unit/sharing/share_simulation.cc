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
  return AddProcess(weight, {{.name = "", .answer_bytes = answer_bytes}});
}

size_t ShareSimulation::AddProcess(double weight, const std::vector<Class>& classes) {
  Process& process = *processes_.emplace_back(std::make_unique<Process>());
  process.id = processes_.size();
  for (const Class& each : classes) process.classes.push_back({.of = each});
  std::vector<std::string> names;
  for (const Class& each : classes) names.push_back(each.name);
  if (classes.size() == 1 && classes[0].name.empty()) names.clear();
  shares_.Join(now_, process.id, weight, names);
  Report(process);
  return processes_.size() - 1;
}

void ShareSimulation::SetBusy(size_t process, bool busy) {
  SetClassBusy(process, 0, busy);
}

void ShareSimulation::SetClassBusy(size_t process, size_t traffic_class, bool busy) {
  Process& changed = *processes_[process];
  if (busy && !changed.busy()) StartBlock(changed);
  changed.classes[traffic_class].busy = busy;
  if (!changed.stopped) AfterChange(changed);
}

void ShareSimulation::CallSlowWorker(size_t index, Duration patience) {
  Process& process = *processes_[index];
  process.thinking_bytes = process.classes[0].of.answer_bytes;
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
  while (ClassState* const next = NextClass(process)) {
    const int64_t bytes = next->of.answer_bytes;
    if (process.dead || process.in_flight_bytes + bytes > LimitOf(process)) return;
    ChargeTurn(process, *next);
    process.in_flight_bytes += bytes;
    next->in_flight_bytes += bytes;
    in_flight_bytes_ += bytes;
    most_in_flight_bytes_ = std::max(most_in_flight_bytes_, in_flight_bytes_);
    const auto on_wire =
        nanoseconds(static_cast<int64_t>(1e9 * static_cast<double>(bytes) / options_.bytes_per_second));
    port_free_at_ = std::max(port_free_at_, now_ + options_.rtt) + on_wire;
    events_.emplace(port_free_at_, [this, &process, next, bytes] {
      in_flight_bytes_ -= bytes;
      if (process.dead) return;
      if (process.stopped) {
        return process.on_wake.push_back([this, &process, next, bytes] { Arrived(process, *next, bytes); });
      }
      Arrived(process, *next, bytes);
    });
  }
}

// The class with the smallest lead, as ServiceOrder chooses it.
ShareSimulation::ClassState* ShareSimulation::NextClass(Process& process) {
  ClassState* next = nullptr;
  for (ClassState& each : process.classes) {
    if (each.asks() && (next == nullptr || each.lead < next->lead)) next = &each;
  }
  return next;
}

void ShareSimulation::ChargeTurn(Process& process, ClassState& asks) {
  const size_t index = static_cast<size_t>(&asks - process.classes.data());
  const double weight = process.class_weights.empty() ? asks.of.weight : process.class_weights[index];
  const double began = asks.lead;
  for (ClassState& each : process.classes) each.lead = std::max(each.lead - began, 0.0);
  asks.lead = static_cast<double>(asks.of.answer_bytes) / weight;
}

void ShareSimulation::Arrived(Process& process, ClassState& by, int64_t bytes) {
  process.in_flight_bytes -= bytes;
  process.received_bytes += bytes;
  by.in_flight_bytes -= bytes;
  by.received_bytes += bytes;
  process.block_bytes += bytes;
  if (process.block_bytes >= kBlockBytes) StartBlock(process);
  AfterChange(process);
}

std::vector<bool> ShareSimulation::Process::ClassesThatWant() const {
  std::vector<bool> want{wants()};
  for (const ClassState& each : classes) want.push_back(each.DemandBytes(1) > 0);
  return want;
}

// Reports under the conditions of UrgencyOf.
void ShareSimulation::AfterChange(Process& process) {
  Ask(process);
  const bool turned = process.ClassesThatWant() != process.reported_wants;
  const bool drained =
      process.reported_in_flight_bytes > LimitOf(process) && process.in_flight_bytes <= LimitOf(process);
  const bool block_ended = options_.shares.mode == SharingMode::kFifo && process.block != process.reported_block;
  if (drained) return Report(process);
  if (turned || block_ended) ReportAfterPause(process);
}

void ShareSimulation::ReportAfterPause(Process& process) {
  const TimePoint at = process.reported_at + shares_.ReportPause();
  if (at <= now_) return Report(process);
  At(at - now_, [this, &process, number = process.reports] {
    if (number == process.reports) Report(process);
  });
}

void ShareSimulation::Report(Process& process) {
  if (process.dead || process.stopped) return;
  process.reported_at = now_;
  const nanoseconds period = process.wants() ? std::max<nanoseconds>(milliseconds(2), shares_.ReportPause())
                                             : nanoseconds(options_.shares.lease_time / 4);
  At(period, [this, &process, number = ++process.reports] {
    if (number == process.reports) Report(process);
  });
  process.reported_wants = process.ClassesThatWant();
  process.reported_block = process.block;
  process.reported_in_flight_bytes = process.in_flight_bytes;
  const int64_t lots = 10 * options_.shares.budget_bytes;
  ShareReport report{.acknowledged = process.acknowledged,
                     .limit_bytes = LimitOf(process),
                     .demand_bytes = process.thinking_bytes,
                     .in_flight_bytes = process.in_flight_bytes,
                     .received_bytes = process.received_bytes,
                     .oldest_block = process.busy() ? process.block : 0,
                     .oldest_block_age = now_ - process.block_since};
  for (const ClassState& each : process.classes) {
    report.demand_bytes += each.DemandBytes(lots);
    report.classes.push_back({.weight = each.of.weight, .demand_bytes = each.DemandBytes(lots)});
  }
  if (const ClassState* const next = NextClass(process)) report.need_bytes = next->of.answer_bytes;
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
  process.class_weights = lease.class_weights;
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
