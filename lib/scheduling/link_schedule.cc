#include "lib/scheduling/link_schedule.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "sluice/plan.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/scheduling/limit_status.h"

namespace sluice {
namespace {

absl::Status CheckAtLeastOne(absl::string_view field, int64_t value) {
  if (value >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", value, " is below 1"));
}

absl::Status CheckLease(const BudgetLease& lease, size_t classes) {
  if (absl::Status status = CheckAtLeastOne("link_bytes", lease.link_bytes); !status.ok()) return status;
  for (const auto& [field, bytes] : {std::pair("bytes", lease.bytes), std::pair("plan_bytes", lease.plan_bytes)}) {
    if (bytes >= 0 && bytes <= lease.link_bytes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": ", bytes, " is outside of 0 to link_bytes: ", lease.link_bytes));
  }
  if (!lease.class_weights.empty() && lease.class_weights.size() != classes) {
    return absl::InvalidArgumentError(
        absl::StrCat("class_weights: there are ", lease.class_weights.size(), ", and ", classes, " classes"));
  }
  for (const double weight : lease.class_weights) {
    if (weight > 0 && std::isfinite(weight)) continue;
    return absl::InvalidArgumentError(absl::StrCat("class_weights: ", weight, " is not above 0"));
  }
  return absl::OkStatus();
}

absl::Status CheckSize(int64_t response_bytes) {
  if (response_bytes >= 0 && response_bytes <= kMaxResponseBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("response_bytes: ", response_bytes, " is outside of 0 to ", kMaxResponseBytes));
}

absl::Status CheckWindow(const CallRequest& call) {
  if (call.window_bytes >= 1 && call.window_bytes <= call.response_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("window_bytes: ", call.window_bytes, " is outside of 1 to response_bytes: ", call.response_bytes));
}

absl::Status CheckDeadline(TimePoint now, TimePoint deadline) {
  return deadline > now ? absl::OkStatus() : absl::DeadlineExceededError("the block's deadline has passed");
}

std::string NamesOf(const std::vector<TrafficClass>& classes) {
  const auto name = [](std::string* names, const TrafficClass& of) { names->append(of.name); };
  return classes.empty() ? "none" : absl::StrJoin(classes, ", ", name);
}

// Returns null if the call waits or has ended.
Call* FindOut(LiveCalls& calls, CallId id) {
  Call* const call = calls.Find(id);
  return call != nullptr && call->out() ? call : nullptr;
}

}  // namespace

LinkSchedule::LinkSchedule(const ScheduleOptions& options)
    : options_(options),
      slots_(options_),
      calls_(options_, breaches_),
      blocks_(calls_.blocks()),
      budget_(calls_.budget()),
      workers_(calls_.workers()),
      sent_(calls_.sent()),
      order_(calls_.order()),
      observer_(calls_.observer()),
      admission_(options_, calls_),
      dispatcher_(calls_, admission_, slots_) {
  SLUICE_HOLDS(breaches_, options.Validate().ok());
}

absl::StatusOr<BlockId> LinkSchedule::Submit(TimePoint now, absl::Span<const CallRequest> calls, TimePoint deadline,
                                             std::vector<Action>& actions, std::vector<CallId>* ids,
                                             size_t traffic_class) {
  if (absl::Status status = CheckSubmit(now, calls, deadline, traffic_class); !status.ok()) return status;
  Enter(now, actions);
  QueuedBlock& block = blocks_.Add(now_, deadline, traffic_class);
  const BlockId id = block.id;
  if (ids != nullptr) ids->assign(calls.size(), CallId());
  const auto queue = [&](size_t i, bool opens_slot) {
    const CallId call = calls_.Queue(block, calls[i], opens_slot, now_);
    if (ids != nullptr) (*ids)[i] = call;
  };
  if (slots_.batched()) {
    slots_.Deal(block, calls, budget_.plan_bytes(), queue);
  } else {
    for (size_t i = 0; i < calls.size(); ++i) queue(i, false);
  }
  Admit(actions);
  return id;
}

absl::StatusOr<BlockId> LinkSchedule::SubmitAhead(TimePoint now, CallRequest request, TimePoint deadline,
                                                  std::vector<Action>& actions, CallId* id) {
  if (absl::Status status = CheckSize(request.response_bytes); !status.ok()) return status;
  if (absl::Status status = CheckDeadline(std::max(now, now_), deadline); !status.ok()) return status;
  Enter(now, actions);
  QueuedBlock& block = blocks_.AddAhead(now_, deadline, request.retry);
  const BlockId block_id = block.id;
  const CallId call_id = calls_.Queue(block, request, false, now_);
  if (id != nullptr) *id = call_id;
  Admit(actions);
  return block_id;
}

absl::Status LinkSchedule::CheckSubmit(TimePoint now, absl::Span<const CallRequest> calls, TimePoint deadline,
                                       size_t traffic_class) const {
  if (traffic_class >= options_.class_count()) {
    return absl::InvalidArgumentError(absl::StrCat("traffic_class: ", traffic_class,
                                                   " is not below the number of classes: ", options_.class_count()));
  }
  const auto count = static_cast<int64_t>(calls.size());
  if (count == 0) return absl::InvalidArgumentError("calls: the block is empty");
  if (count > options_.queue_limit) {
    return absl::InvalidArgumentError(
        absl::StrCat("calls: ", count, " in one block are more than queue_limit: ", options_.queue_limit));
  }
  for (const CallRequest& call : calls) {
    if (absl::Status status = CheckSize(call.response_bytes); !status.ok()) return status;
    if (call.window_bytes == 0) continue;
    if (absl::Status status = CheckWindow(call); !status.ok()) return status;
  }
  if (absl::Status status = CheckDeadline(std::max(now, now_), deadline); !status.ok()) return status;
  if (count == 1 && calls[0].window_bytes > 0) return absl::OkStatus();
  if (count > options_.queue_limit - blocks_.waiting_calls()) {
    return AtLimit("schedule.queue_limit",
                   absl::StrCat("the queue has no room for ", count, " calls: ", blocks_.waiting_calls(),
                                " wait, queue_limit is ", options_.queue_limit));
  }
  if (options_.classes.empty()) return absl::OkStatus();
  const TrafficClass& of = options_.classes[traffic_class];
  const int64_t waiting = blocks_.waiting_calls(traffic_class);
  if (count > of.queue_limit - waiting) {
    return AtLimit("schedule.classes.queue_limit",
                   absl::StrCat("the queue of class \"", of.name, "\" has no room for ", count, " calls: ", waiting,
                                " wait, its queue_limit is ", of.queue_limit));
  }
  return absl::OkStatus();
}

absl::StatusOr<CallId> LinkSchedule::Add(TimePoint now, BlockId id, CallRequest request, std::vector<Action>& actions) {
  if (absl::Status status = CheckSize(request.response_bytes); !status.ok()) return status;
  QueuedBlock* const block = blocks_.Find(id);
  if (block == nullptr) return absl::NotFoundError(absl::StrCat("block ", id, " has ended"));
  if (block->cancelled) return absl::CancelledError(absl::StrCat("block ", id, " was cancelled"));
  if (block->deadline <= std::max(now, now_)) {
    return absl::DeadlineExceededError(absl::StrCat("the deadline of block ", id, " has passed"));
  }
  Enter(now, actions);
  if (slots_.batched()) slots_.AddSlot(*block, request.response_bytes, budget_.plan_bytes());
  const CallId call = calls_.Queue(*block, request, slots_.batched(), now_);
  Admit(actions);
  return call;
}

void LinkSchedule::Unpark(TimePoint now, CallId id, std::vector<Action>& actions) {
  Enter(now, actions);
  if (Call* const call = calls_.Find(id); call != nullptr && call->phase == Phase::kParked) {
    call->opens_slot = slots_.batched();
    calls_.Unpark(*call, now_);
  }
  Admit(actions);
}

void LinkSchedule::OnUnsent(TimePoint now, CallId id, std::vector<Action>& actions) {
  Enter(now, actions);
  if (Call* const call = FindOut(calls_, id); call != nullptr) {
    calls_.Unsend(*call, now_);
    OnCallGone(*call->block);
    Expire(actions);
  }
  Admit(actions);
}

// Add the sizes: a response may have two blocks of headers, its head, and an error in the trailers.
void LinkSchedule::OnHeaders(CallId id, int64_t wire_bytes) {
  Call* const call = FindOut(calls_, id);
  if (call == nullptr || call->progress.was_ready || wire_bytes < 1) return;
  call->progress.header_wire_bytes += std::min(wire_bytes, kMaxResponseBytes);
}

void LinkSchedule::OnReady(TimePoint now, CallId id, int64_t remaining_bytes, std::vector<Action>& actions,
                           int64_t withheld_bytes) {
  Enter(now, actions);
  if (Call* const call = FindOut(calls_, id); call != nullptr && !call->progress.aborted) {
    calls_.TakeReady(*call, std::clamp<int64_t>(remaining_bytes, 0, kMaxResponseBytes),
                     std::clamp<int64_t>(withheld_bytes, 0, kMaxResponseBytes), now_);
  }
  Admit(actions);
}

void LinkSchedule::OnReceived(TimePoint now, CallId id, int64_t bytes, std::vector<Action>& actions) {
  Enter(now, actions);
  if (Call* const call = FindOut(calls_, id); call != nullptr && bytes > 0) {
    calls_.Receive(*call, std::min(bytes, kMaxResponseBytes), now_);
  }
  Admit(actions);
}

void LinkSchedule::OnUnwanted(TimePoint now, CallId id, std::vector<Action>& actions) {
  Enter(now, actions);
  if (Call* const call = FindOut(calls_, id); call != nullptr && !call->progress.aborted)
    calls_.SetUnwanted(*call, now_);
  Admit(actions);
}

void LinkSchedule::OnFinished(TimePoint now, CallId id, CallEnd end, std::vector<Action>& actions) {
  Enter(now, actions);
  if (Call* const call = FindOut(calls_, id); call != nullptr) {
    QueuedBlock& block = *call->block;
    calls_.Finish(*call, end, now_);
    OnCallGone(block);
  }
  Admit(actions);
}

void LinkSchedule::Cancel(TimePoint now, BlockId id, std::vector<Action>& actions) {
  Enter(now, actions);
  if (QueuedBlock* const block = blocks_.Find(id); block != nullptr && !block->cancelled) {
    block->cancelled = true;
    EndBlock(*block, Action::Kind::kDrop, actions);
  }
  Admit(actions);
}

void LinkSchedule::CancelCall(TimePoint now, CallId id, std::vector<Action>& actions) {
  Enter(now, actions);
  if (Call* const call = calls_.Find(id); call != nullptr) {
    if (call->out()) {
      Abort(*call, actions);
    } else {
      QueuedBlock& block = *call->block;
      BatchSlots::PassOn(*call);
      actions.push_back({Action::Kind::kDrop, call->id, call->tag});
      calls_.EndUnsent(*call, now_);
      OnCallGone(block);
    }
  }
  Admit(actions);
}

void LinkSchedule::OnTimer(TimePoint now, std::vector<Action>& actions) {
  Enter(now, actions);
  Admit(actions);
}

TimePoint LinkSchedule::NextTimer() const {
  TimePoint next = std::min({budget_.next_drain(), calls_.outstanding().next_stall(), dispatcher_.NextTimer(now_)});
  if (const QueuedBlock* block = blocks_.first_to_expire()) next = std::min(next, block->deadline);
  return next;
}

absl::Status LinkSchedule::SetBudget(TimePoint now, int64_t budget_bytes, std::vector<Action>& actions) {
  if (absl::Status status = CheckAtLeastOne("budget_bytes", budget_bytes); !status.ok()) return status;
  Enter(now, actions);
  budget_.Set(budget_bytes);
  calls_.OnBudgetChanged(now_);
  Admit(actions);
  return absl::OkStatus();
}

absl::Status LinkSchedule::Reconfigure(TimePoint now, const ScheduleOptions& options, std::vector<Action>& actions) {
  if (absl::Status status = options.Validate(); !status.ok()) return status;
  if (options.stall_timeout != options_.stall_timeout) {
    return absl::InvalidArgumentError(absl::StrCat("stall_timeout: ", absl::FormatDuration(options.stall_timeout),
                                                   " cannot take the place of ",
                                                   absl::FormatDuration(options_.stall_timeout)));
  }
  if (NamesOf(options.classes) != NamesOf(options_.classes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("classes: ", NamesOf(options.classes), " cannot take the place of ", NamesOf(options_.classes)));
  }
  Enter(now, actions);
  const SchedulePolicy policy_before = options_.policy;
  options_ = options;
  calls_.OnOptionsChanged(policy_before, now_);
  slots_.OnOptionsChanged();
  if (options_.policy != policy_before) slots_.OnPolicyChanged(blocks_, budget_.plan_bytes());
  Admit(actions);
  return absl::OkStatus();
}

absl::Status LinkSchedule::SetLease(TimePoint now, const BudgetLease& lease, std::vector<Action>& actions) {
  if (absl::Status status = CheckLease(lease, options_.class_count()); !status.ok()) return status;
  Enter(now, actions);
  budget_.Lend(lease);
  budget_.EndLease(now_);
  calls_.OnBudgetChanged(now_);
  Admit(actions);
  return absl::OkStatus();
}

void LinkSchedule::Enter(TimePoint now, std::vector<Action>& actions) {
  now_ = std::max(now_, now);
  budget_.Advance(now_);
  budget_.EndLease(now_);
  budget_.Drain(now_);
  calls_.order().MoveLate(now_);
  // Release stalled bytes: if they were lost, the link would be idle until a retransmission timeout.
  while (Call* const call = calls_.TakeStalled(now_)) {
    actions.push_back({Action::Kind::kStall, call->id, call->tag});
  }
  Expire(actions);
}

void LinkSchedule::Admit(std::vector<Action>& actions) {
  dispatcher_.Dispatch(now_, actions);
  backlog_.Count(now_, calls_.laps().received_bytes(), dispatcher_.HasBacklog());
  calls_.Check();
}

void LinkSchedule::Expire(std::vector<Action>& actions) {
  for (QueuedBlock* block = blocks_.first_to_expire(); block != nullptr && block->deadline <= now_;
       block = blocks_.first_to_expire()) {
    EndBlock(*block, Action::Kind::kExpire, actions);
  }
}

// Ends the calls that were not sent, and aborts the others. An expired block keeps its calls in flight.
void LinkSchedule::EndBlock(QueuedBlock& block, Action::Kind kind, std::vector<Action>& actions) {
  for (CallList* calls : {&block.in_flight, &block.sent, &block.ready}) {
    if (calls == &block.in_flight && kind == Action::Kind::kExpire) continue;
    for (auto next = calls->begin(); next != calls->end();) Abort(*next++, actions);
  }
  // The end of one call may let a held call go, which then waits.
  while (!block.waiting.empty() || !block.held.empty() || !block.parked.empty()) {
    for (CallList* calls : {&block.waiting, &block.held, &block.parked}) {
      while (!calls->empty()) {
        actions.push_back({kind, calls->front().id, calls->front().tag});
        calls_.EndUnsent(calls->front(), now_);
      }
    }
  }
  OnCallGone(block);
}

// Reports the abort to the caller once.
void LinkSchedule::Abort(Call& call, std::vector<Action>& actions) {
  if (call.progress.aborted) return;
  actions.push_back({Action::Kind::kAbort, call.id, call.tag});
  calls_.Abort(call, now_);
}

// Ends the block's turn in batches, and the block itself, if its last call has left it.
void LinkSchedule::OnCallGone(QueuedBlock& block) {
  if (block.idle()) slots_.Ended(block);
  if (block.ended()) blocks_.Remove(block);
}

// Bytes on a long path are not in the buffer, which processes share.
LinkDemand LinkSchedule::Demand(TimePoint now) const {
  const int64_t buffered_bytes = std::max<int64_t>(budget_.in_flight_bytes() - budget_.pacer().pipe_bytes(), 0);
  LinkDemand demand{.limit_bytes = budget_.bytes_at(std::max(now, now_)),
                    .demand_bytes = blocks_.remaining_bytes(),
                    .in_flight_bytes = buffered_bytes + admission_.HeaderBytes(),
                    .need_bytes = dispatcher_.NeedBytes(),
                    .received_bytes = calls_.laps().received_bytes(),
                    .oldest_block = 0,
                    .oldest_since = {}};
  if (const QueuedBlock* block = blocks_.oldest()) {
    demand.oldest_block = block->id;
    demand.oldest_since = block->since;
  }
  for (size_t i = 0; i < options_.classes.size(); ++i) {
    demand.classes.push_back({.weight = options_.classes[i].weight,
                              .demand_bytes = blocks_.remaining_bytes(i),
                              .received_bytes = order_.received_bytes(i)});
  }
  return demand;
}

WorkerLoad LinkSchedule::Load(uint32_t id) const {
  const QueuedWorker* const worker = workers_.Find(id);
  if (worker == nullptr) return {};
  return {.share_bytes = calls_.laps().ShareBytes(*worker),
          .slow = worker->share.slow(),
          .charged_bytes = worker->charged_bytes,
          .owed_bytes = worker->owed_bytes,
          .calls = worker->users,
          .held_calls = worker->held_calls,
          .out_calls = worker->out_calls,
          .owing_calls = worker->owing_calls,
          .stalled_calls = worker->stalled_calls,
          .ended_calls = worker->ended_calls,
          .owed_since = worker->owed_since,
          .pauses = worker->pauses};
}

TrafficClassState LinkSchedule::ClassState(size_t traffic_class) const {
  return {.waiting_calls = blocks_.waiting_calls(traffic_class),
          .ready_bytes = blocks_.ready_bytes(traffic_class),
          .received_bytes = order_.received_bytes(traffic_class)};
}

ScheduleState LinkSchedule::State() const {
  return {.budget_bytes = budget_.bytes(),
          .plan_bytes = budget_.plan_bytes(),
          .in_flight_bytes = budget_.in_flight_bytes(),
          .slow_bytes = budget_.slow_bytes(),
          .in_flight_calls = blocks_.calls(Phase::kInFlight),
          .ungranted_calls = blocks_.calls(Phase::kSent) + blocks_.calls(Phase::kReady),
          .straggling_calls = sent_.stragglers(),
          .ready_bytes = blocks_.ready_bytes(),
          .waiting_calls = blocks_.waiting_calls(),
          .parked_calls = blocks_.calls(Phase::kParked),
          .held_calls = blocks_.calls(Phase::kHeld),
          .blocks = blocks_.size(),
          .submitted_calls = calls_.submitted(),
          .ended_calls = calls_.ended(),
          .late_blocks = order_.late_blocks(),
          .backlogged_time = backlog_.time(),
          .backlogged_bytes = backlog_.bytes()};
}

}  // namespace sluice
