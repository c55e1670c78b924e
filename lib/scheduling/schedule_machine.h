#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sluice/link_schedule.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/scheduling/batch_slots.h"
#include "lib/scheduling/block_queue.h"
#include "lib/scheduling/budget.h"
#include "lib/scheduling/call_table.h"
#include "lib/scheduling/grant_window.h"
#include "lib/scheduling/sent_calls.h"
#include "lib/scheduling/stall_timers.h"

namespace sluice {

// The state machine behind LinkSchedule, with its contract. The order of an event: Enter does what was due, then the
// event itself, then Admit lets through what fits now.
class ScheduleMachine {
 public:
  explicit ScheduleMachine(const LinkSchedule::Options& options);  // within their bounds

  absl::StatusOr<BlockId> Submit(TimePoint now, absl::Span<const CallRequest> calls, TimePoint deadline,
                                 std::vector<Action>& actions);
  absl::StatusOr<CallId> Add(TimePoint now, BlockId id, CallRequest request, std::vector<Action>& actions);
  void OnReady(TimePoint now, CallId id, std::optional<int64_t> response_bytes, std::vector<Action>& actions);
  void OnProgress(TimePoint now, CallId id, int64_t remaining_bytes, std::vector<Action>& actions);
  void OnFinished(TimePoint now, CallId id, CallEnd end, std::vector<Action>& actions);
  void Cancel(TimePoint now, BlockId id, std::vector<Action>& actions);
  void CancelCall(TimePoint now, CallId id, std::vector<Action>& actions);
  void OnTimer(TimePoint now, std::vector<Action>& actions);
  TimePoint NextTimer() const;
  void SetBudget(TimePoint now, int64_t budget_bytes, std::vector<Action>& actions);
  void Reconfigure(TimePoint now, const LinkSchedule::Options& options, std::vector<Action>& actions);
  ScheduleState State() const;
  const LinkSchedule::Options& options() const { return options_; }

 private:
  using Phase = Call::Phase;

  absl::Status CheckSubmit(TimePoint now, absl::Span<const CallRequest> calls, TimePoint deadline) const;
  void Enter(TimePoint now, std::vector<Action>& actions);
  void Admit(std::vector<Action>& actions);

  bool MayLeave(QueuedBlock& block);
  bool MayGoGranted(const Call& call) const;
  bool MayAsk() const;
  void Grant(std::vector<Action>& actions);
  void SetSize(Call& call, int64_t response_bytes);
  CallId Queue(QueuedBlock& block, const CallRequest& request, bool opens_slot);
  void QueueInBatches(QueuedBlock& block, absl::Span<const CallRequest> calls);
  void Send(QueuedBlock& block, std::vector<Action>& actions);
  void CancelWaiting(Call& call, std::vector<Action>& actions);
  void EndWaiting(QueuedBlock& block, Action::Kind kind, std::vector<Action>& actions);
  void EndWaiting(Call& call, Action::Kind kind, std::vector<Action>& actions);
  void AbortAll(CallList& calls, std::vector<Action>& actions);
  void Abort(Call& call, std::vector<Action>& actions);
  void EndOut(Call& call, CallEnd end);
  void End(Call& call);
  void Charge(Call& call);
  void ChargeHeaders(Call& call);
  void Uncharge(Call& call, CallEnd end);
  void RemoveIfEnded(QueuedBlock& block);
  int64_t waiting_calls() const { return blocks_.calls(Phase::kWaiting); }
  void Check() const;

  LinkSchedule::Options options_;
  const bool batched_;
  const bool granting_;
  int64_t most_cost_bytes_;  // of one call

  TimePoint now_ = TimePoint::min();  // of the last event
  Budget budget_;
  CallTable calls_;
  BlockQueue blocks_;
  BatchSlots slots_;

  // Grants.
  GrantWindow window_;
  SentCalls sent_;
  StallTimers stall_timers_;
  int64_t asked_bytes_ = 0;  // what all calls that have not ended cost together

  int64_t submitted_calls_ = 0;
  int64_t ended_calls_ = 0;
};

}  // namespace sluice
