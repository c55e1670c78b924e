#pragma once

#include <cstdint>
#include <vector>

#include "sluice/link_schedule.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/scheduling/admission.h"
#include "lib/scheduling/batch_slots.h"
#include "lib/scheduling/live_calls.h"

namespace sluice {

// The state machine behind LinkSchedule, with the same contract. In each event, Enter first does what was due, then the
// event itself happens, and then Admit lets through what fits now. There is one for each schedule.
class ScheduleMachine {
 public:
  explicit ScheduleMachine(const LinkSchedule::Options& options);  // must be within their bounds
  ScheduleMachine(const ScheduleMachine&) = delete;                // its parts refer to each other
  ScheduleMachine& operator=(const ScheduleMachine&) = delete;

  absl::StatusOr<BlockId> Submit(TimePoint now, absl::Span<const CallRequest> calls, TimePoint deadline,
                                 std::vector<Action>& actions, std::vector<CallId>* ids);
  absl::StatusOr<BlockId> SubmitAhead(TimePoint now, const CallRequest& request, TimePoint deadline,
                                      std::vector<Action>& actions, CallId* id);
  absl::StatusOr<CallId> Add(TimePoint now, BlockId id, CallRequest request, std::vector<Action>& actions);
  void Unpark(TimePoint now, CallId id, std::vector<Action>& actions);
  void OnUnsent(TimePoint now, CallId id, std::vector<Action>& actions);
  void OnHeaders(CallId id, int64_t wire_bytes);
  void OnReady(TimePoint now, CallId id, int64_t remaining_bytes, int64_t withheld_bytes, std::vector<Action>& actions);
  void OnUnwanted(TimePoint now, CallId id, std::vector<Action>& actions);
  void OnReceived(TimePoint now, CallId id, int64_t bytes, std::vector<Action>& actions);
  void OnFinished(TimePoint now, CallId id, CallEnd end, std::vector<Action>& actions);
  void Cancel(TimePoint now, BlockId id, std::vector<Action>& actions);
  void CancelCall(TimePoint now, CallId id, std::vector<Action>& actions);
  void OnTimer(TimePoint now, std::vector<Action>& actions);
  TimePoint NextTimer() const;
  void SetBudget(TimePoint now, int64_t budget_bytes, std::vector<Action>& actions);
  void Reconfigure(TimePoint now, const LinkSchedule::Options& options, std::vector<Action>& actions);
  void SetLease(TimePoint now, const BudgetLease& lease, std::vector<Action>& actions);
  ScheduleState State() const;
  LinkDemand Demand(TimePoint now) const;
  bool FitsOnePart(int64_t bytes) const { return admission_.PartOf(bytes) == bytes; }
  WorkerLoad Load(uint32_t worker) const;
  void ForgetWorker(uint32_t worker) { calls_.ForgetWorker(worker); }
  const LinkSchedule::Options& options() const { return options_; }

 private:
  using Phase = Call::Phase;

  absl::Status CheckSubmit(TimePoint now, absl::Span<const CallRequest> calls, TimePoint deadline) const;
  void Enter(TimePoint now, std::vector<Action>& actions);
  void Expire(std::vector<Action>& actions);
  void Admit(std::vector<Action>& actions);
  bool WaitsForRoom() const;
  void CountBacklog();
  bool SendAhead(std::vector<Action>& actions);
  bool SendNext(std::vector<Action>& actions);
  void Send(Call& call, int64_t bytes, std::vector<Action>& actions);
  bool GrantNext(std::vector<Action>& actions);
  bool GrantEarly(std::vector<Action>& actions);

  void SetPlan();
  void QueueInBatches(QueuedBlock& block, absl::Span<const CallRequest> calls, std::vector<CallId>* ids);
  size_t PlanBlock(QueuedBlock& block, absl::Span<const CallRequest> calls) const;
  void PassSlotOn(Call& call);
  void EndUnsent(QueuedBlock& block, Action::Kind kind, std::vector<Action>& actions);
  void EndUnsent(Call& call, Action::Kind kind, std::vector<Action>& actions);
  void AbortAll(CallList& calls, std::vector<Action>& actions);
  void Abort(Call& call, std::vector<Action>& actions);
  void OnCallGone(QueuedBlock& block);
  Call* FindOut(CallId id);  // null if the call waits or has ended

  LinkSchedule::Options options_;
  const bool batched_;
  const bool granting_;

  TimePoint now_ = TimePoint::min();  // of the last event
  // Of ScheduleState, up to the last event.
  TimePoint counted_until_;
  int64_t counted_bytes_ = 0;
  bool backlogged_ = false;
  std::chrono::nanoseconds backlogged_time_{0};
  int64_t backlogged_bytes_ = 0;
  BatchSlots slots_;
  LiveCalls calls_;
  Admission admission_;
};

}  // namespace sluice
