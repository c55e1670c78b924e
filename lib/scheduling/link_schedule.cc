#include "sluice/link_schedule.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/scheduling/schedule_machine.h"

namespace sluice {
namespace {

absl::Status CheckAtLeastOne(absl::string_view field, std::optional<int64_t> value) {
  if (value.value_or(1) >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", *value, " is below 1"));
}

absl::Status CheckOptions(const LinkSchedule::Options& options) {
  absl::Status status = options.profile.Validate();
  status.Update(CheckAtLeastOne("budget_bytes", options.budget_bytes));
  status.Update(CheckAtLeastOne("queue_limit", options.queue_limit));
  if (options.record_overhead_bytes < 0) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("record_overhead_bytes: ", options.record_overhead_bytes, " is below 0")));
  }
  if (options.stall_timeout <= absl::ZeroDuration()) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("stall_timeout: ", absl::FormatDuration(options.stall_timeout), " is not above 0")));
  }
  return status;
}

absl::Status CheckLease(const BudgetLease& lease) {
  if (absl::Status status = CheckAtLeastOne("link_bytes", lease.link_bytes); !status.ok()) return status;
  for (const auto& [field, bytes] : {std::pair("bytes", lease.bytes), std::pair("plan_bytes", lease.plan_bytes)}) {
    if (bytes >= 0 && bytes <= lease.link_bytes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": ", bytes, " is outside of 0 to link_bytes: ", lease.link_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LinkSchedule> LinkSchedule::Create(const Options& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  return LinkSchedule(std::make_unique<ScheduleMachine>(options));
}

LinkSchedule::LinkSchedule(std::unique_ptr<ScheduleMachine> machine) : machine_(std::move(machine)) {}
LinkSchedule::LinkSchedule(LinkSchedule&&) noexcept = default;
LinkSchedule& LinkSchedule::operator=(LinkSchedule&&) noexcept = default;
LinkSchedule::~LinkSchedule() = default;

absl::StatusOr<BlockId> LinkSchedule::Submit(TimePoint now, absl::Span<const CallRequest> calls, TimePoint deadline,
                                             std::vector<Action>& actions, std::vector<CallId>* ids) {
  return machine_->Submit(now, calls, deadline, actions, ids);
}

absl::StatusOr<CallId> LinkSchedule::Add(TimePoint now, BlockId block, CallRequest call, std::vector<Action>& actions) {
  return machine_->Add(now, block, call, actions);
}

absl::StatusOr<BlockId> LinkSchedule::SubmitAhead(TimePoint now, CallRequest call, TimePoint deadline,
                                                  std::vector<Action>& actions, CallId* id) {
  return machine_->SubmitAhead(now, call, deadline, actions, id);
}

void LinkSchedule::Unpark(TimePoint now, CallId call, std::vector<Action>& actions) {
  machine_->Unpark(now, call, actions);
}

WorkerLoad LinkSchedule::Load(uint32_t worker) const {
  return machine_->Load(worker);
}

void LinkSchedule::ForgetWorker(uint32_t worker) {
  machine_->ForgetWorker(worker);
}

void LinkSchedule::OnUnsent(TimePoint now, CallId call, std::vector<Action>& actions) {
  machine_->OnUnsent(now, call, actions);
}

void LinkSchedule::OnHeaders(CallId call, int64_t wire_bytes) {
  machine_->OnHeaders(call, wire_bytes);
}

void LinkSchedule::OnReady(TimePoint now, CallId call, int64_t remaining_bytes, std::vector<Action>& actions,
                           int64_t withheld_bytes) {
  machine_->OnReady(now, call, remaining_bytes, withheld_bytes, actions);
}

void LinkSchedule::OnReceived(TimePoint now, CallId call, int64_t bytes, std::vector<Action>& actions) {
  machine_->OnReceived(now, call, bytes, actions);
}

void LinkSchedule::OnUnwanted(TimePoint now, CallId call, std::vector<Action>& actions) {
  machine_->OnUnwanted(now, call, actions);
}

void LinkSchedule::OnFinished(TimePoint now, CallId call, CallEnd end, std::vector<Action>& actions) {
  machine_->OnFinished(now, call, end, actions);
}

void LinkSchedule::Cancel(TimePoint now, BlockId block, std::vector<Action>& actions) {
  machine_->Cancel(now, block, actions);
}

void LinkSchedule::CancelCall(TimePoint now, CallId call, std::vector<Action>& actions) {
  machine_->CancelCall(now, call, actions);
}

void LinkSchedule::OnTimer(TimePoint now, std::vector<Action>& actions) {
  machine_->OnTimer(now, actions);
}

TimePoint LinkSchedule::NextTimer() const {
  return machine_->NextTimer();
}

absl::Status LinkSchedule::SetBudget(TimePoint now, int64_t budget_bytes, std::vector<Action>& actions) {
  if (absl::Status status = CheckAtLeastOne("budget_bytes", budget_bytes); !status.ok()) return status;
  machine_->SetBudget(now, budget_bytes, actions);
  return absl::OkStatus();
}

absl::Status LinkSchedule::Reconfigure(TimePoint now, const Options& options, std::vector<Action>& actions) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  const Options& before = machine_->options();
  if (options.discipline != before.discipline) {
    return absl::InvalidArgumentError(absl::StrCat("discipline: ", std::string(DisciplineName(options.discipline)),
                                                   " cannot take the place of ",
                                                   std::string(DisciplineName(before.discipline))));
  }
  if (options.stall_timeout != before.stall_timeout) {
    return absl::InvalidArgumentError(absl::StrCat("stall_timeout: ", absl::FormatDuration(options.stall_timeout),
                                                   " cannot take the place of ",
                                                   absl::FormatDuration(before.stall_timeout)));
  }
  machine_->Reconfigure(now, options, actions);
  return absl::OkStatus();
}

absl::Status LinkSchedule::SetLease(TimePoint now, const BudgetLease& lease, std::vector<Action>& actions) {
  if (absl::Status status = CheckLease(lease); !status.ok()) return status;
  machine_->SetLease(now, lease, actions);
  return absl::OkStatus();
}

LinkDemand LinkSchedule::Demand(TimePoint now) const {
  return machine_->Demand(now);
}

bool LinkSchedule::FitsOnePart(int64_t response_bytes) const {
  return machine_->FitsOnePart(response_bytes);
}

ScheduleState LinkSchedule::State() const {
  return machine_->State();
}

const LinkSchedule::Options& LinkSchedule::options() const {
  return machine_->options();
}

}  // namespace sluice
