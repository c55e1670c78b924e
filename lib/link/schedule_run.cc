#include "lib/link/schedule_run.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace sluice {
namespace {

Scheduled& ScheduledOf(uint64_t tag) {
  return *reinterpret_cast<Scheduled*>(static_cast<uintptr_t>(tag));
}

}  // namespace

ScheduleRun::ScheduleRun(Executor& executor, const ScheduleOptions& options, LinkMetrics& metrics)
    : executor_(executor), metrics_(metrics), schedule_(options) {}

template <class Event>
void ScheduleRun::Drive(Event event) {
  event(executor_.Now());
  ReportBreaches(schedule_.breaches());
  changed_ = true;
  if (applying_) return;
  applying_ = true;
  for (size_t next = 0; next < actions_.size(); ++next) Apply(Action(actions_[next]));
  actions_.clear();
  applying_ = false;
}

void ScheduleRun::Apply(const Action& action) {
  switch (action.kind) {
    case Action::Kind::kSend:
      return ScheduledOf(action.tag).Send(action.bytes);
    case Action::Kind::kGrant:
      return ScheduledOf(action.tag).Grant(action.bytes);
    case Action::Kind::kStall:
      return metrics_.CountTimeout(TimeoutKind::kStall);
    case Action::Kind::kExpire:
      return ScheduledOf(action.tag)
          .EndUnsent(absl::DeadlineExceededError("the deadline passed while the request waited; it was not sent"));
    case Action::Kind::kDrop:
      return ScheduledOf(action.tag)
          .EndUnsent(absl::CancelledError("cancelled while the request waited; it was not sent"));
    case Action::Kind::kAbort:
      return ScheduledOf(action.tag).Abort();
  }
}

template <class Event>
absl::Status ScheduleRun::Try(Event event) {
  absl::Status status;
  Drive([&](TimePoint now) { status = event(now); });
  return status;
}

absl::Status ScheduleRun::Submit(absl::Span<const CallRequest> calls, TimePoint deadline, BlockId& block,
                                 size_t traffic_class) {
  absl::Status status = Try([&](TimePoint now) {
    std::vector<CallId> ids;
    const absl::StatusOr<BlockId> submitted = schedule_.Submit(now, calls, deadline, actions_, &ids, traffic_class);
    if (!submitted.ok()) return submitted.status();
    block = *submitted;
    for (size_t i = 0; i < calls.size(); ++i) ScheduledOf(calls[i].tag).id_ = ids[i];
    return absl::OkStatus();
  });
  if (!status.ok() || calls[0].window_bytes > 0) return status;
  last_block_ = {.calls = static_cast<int64_t>(calls.size())};
  for (const CallRequest& call : calls) {
    last_block_.response_bytes = std::max(last_block_.response_bytes, call.response_bytes);
  }
  return status;
}

absl::Status ScheduleRun::SubmitAhead(const CallRequest& call, TimePoint deadline, BlockId& block) {
  return Try([&](TimePoint now) {
    CallId id;
    const absl::StatusOr<BlockId> submitted = schedule_.SubmitAhead(now, call, deadline, actions_, &id);
    if (!submitted.ok()) return submitted.status();
    block = *submitted;
    ScheduledOf(call.tag).id_ = id;
    return absl::OkStatus();
  });
}

absl::Status ScheduleRun::Add(BlockId block, const CallRequest& call) {
  return Try([&](TimePoint now) {
    const absl::StatusOr<CallId> added = schedule_.Add(now, block, call, actions_);
    if (added.ok()) ScheduledOf(call.tag).id_ = *added;
    return added.status();
  });
}

void ScheduleRun::Unpark(CallId call) {
  Drive([&](TimePoint now) { schedule_.Unpark(now, call, actions_); });
}

void ScheduleRun::OnUnsent(CallId call) {
  Drive([&](TimePoint now) { schedule_.OnUnsent(now, call, actions_); });
}

void ScheduleRun::OnReady(CallId call, int64_t remaining_bytes, int64_t withheld_bytes) {
  Drive([&](TimePoint now) { schedule_.OnReady(now, call, remaining_bytes, actions_, withheld_bytes); });
}

void ScheduleRun::OnReceived(CallId call, int64_t bytes) {
  Drive([&](TimePoint now) { schedule_.OnReceived(now, call, bytes, actions_); });
}

void ScheduleRun::OnUnwanted(CallId call) {
  Drive([&](TimePoint now) { schedule_.OnUnwanted(now, call, actions_); });
}

void ScheduleRun::OnFinished(CallId call, CallEnd end) {
  Drive([&](TimePoint now) { schedule_.OnFinished(now, call, end, actions_); });
}

void ScheduleRun::Cancel(BlockId block) {
  Drive([&](TimePoint now) { schedule_.Cancel(now, block, actions_); });
}

void ScheduleRun::CancelCall(CallId call) {
  Drive([&](TimePoint now) { schedule_.CancelCall(now, call, actions_); });
}

absl::Status ScheduleRun::SetBudget(int64_t budget_bytes) {
  return Try([&](TimePoint now) { return schedule_.SetBudget(now, budget_bytes, actions_); });
}

absl::Status ScheduleRun::SetLease(const BudgetLease& lease) {
  return Try([&](TimePoint now) { return schedule_.SetLease(now, lease, actions_); });
}

absl::Status ScheduleRun::Reconfigure(const ScheduleOptions& options) {
  return Try([&](TimePoint now) { return schedule_.Reconfigure(now, options, actions_); });
}

void ScheduleRun::OnTimer(TimePoint now) {
  if (schedule_.NextTimer() > now) return;
  Drive([&](TimePoint now) { schedule_.OnTimer(now, actions_); });
}

void ScheduleRun::ReportBreaches(Breaches& breaches) {
  const std::optional<InvariantBreach> breach = breaches.Take();
  if (!breach.has_value()) return;
  metrics_.CountBreaches(breach->breaches);
  if (breach_watcher_) breach_watcher_(*breach);
}

void ScheduleRun::ReportDemand(TimePoint now) {
  if (std::exchange(changed_, false) && demand_watcher_) demand_watcher_(schedule_.Demand(now));
}

}  // namespace sluice
