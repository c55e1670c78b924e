#include "lib/scheduling/schedule_machine.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "sluice/plan.h"

#include "absl/strings/str_cat.h"
#include "lib/scheduling/batch_plan.h"

namespace sluice {
namespace {

// Grants: what may be out with its grant before it is ready. Stragglers among it hold no more of the budget than that.
constexpr int64_t kGrantedAtOnceShare = 3;

absl::Status CheckSize(int64_t response_bytes) {
  if (response_bytes >= 0 && response_bytes <= kMaxResponseBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("response_bytes: ", response_bytes, " is outside of 0 to ", kMaxResponseBytes));
}

int64_t MostCost(const LinkSchedule::Options& options) {
  if (options.discipline == Discipline::kUnscheduled || !options.max_in_flight_per_call_bytes.has_value()) {
    return std::numeric_limits<int64_t>::max();
  }
  return BufferCostBytes(options.profile, *options.max_in_flight_per_call_bytes);
}

}  // namespace

ScheduleMachine::ScheduleMachine(const LinkSchedule::Options& options)
    : options_(options),
      batched_(options.discipline == Discipline::kBatches),
      granting_(options.discipline == Discipline::kGrants),
      most_cost_bytes_(MostCost(options)),
      budget_(options),
      slots_(options.profile),
      window_(options),
      stall_timers_(options) {}

absl::StatusOr<BlockId> ScheduleMachine::Submit(TimePoint now, absl::Span<const CallRequest> calls, TimePoint deadline,
                                                std::vector<Action>& actions) {
  if (absl::Status status = CheckSubmit(now, calls, deadline); !status.ok()) return status;
  Enter(now, actions);
  QueuedBlock& block = blocks_.Add(now_, deadline);
  const BlockId id = block.id;
  if (batched_) {
    QueueInBatches(block, calls);
  } else {
    for (const CallRequest& call : calls) Queue(block, call, false);
  }
  Admit(actions);
  return id;
}

absl::Status ScheduleMachine::CheckSubmit(TimePoint now, absl::Span<const CallRequest> calls,
                                          TimePoint deadline) const {
  const auto count = static_cast<int64_t>(calls.size());
  if (count == 0) return absl::InvalidArgumentError("calls: the block is empty");
  if (count > options_.queue_limit) {
    return absl::InvalidArgumentError(
        absl::StrCat("calls: ", count, " in one block are more than queue_limit: ", options_.queue_limit));
  }
  for (const CallRequest& call : calls) {
    if (absl::Status status = CheckSize(call.response_bytes); !status.ok()) return status;
  }
  if (deadline <= std::max(now, now_)) return absl::DeadlineExceededError("the block's deadline has passed");
  if (count > options_.queue_limit - waiting_calls()) {
    return absl::ResourceExhaustedError(absl::StrCat("the queue has no room for ", count, " calls: ", waiting_calls(),
                                                     " wait, queue_limit is ", options_.queue_limit));
  }
  return absl::OkStatus();
}

absl::StatusOr<CallId> ScheduleMachine::Add(TimePoint now, BlockId id, CallRequest request,
                                            std::vector<Action>& actions) {
  if (absl::Status status = CheckSize(request.response_bytes); !status.ok()) return status;
  QueuedBlock* const block = blocks_.Find(id);
  if (block == nullptr) return absl::NotFoundError(absl::StrCat("block ", id, " has ended"));
  if (block->cancelled) return absl::CancelledError(absl::StrCat("block ", id, " was cancelled"));
  if (block->deadline <= std::max(now, now_)) {
    return absl::DeadlineExceededError(absl::StrCat("the deadline of block ", id, " has passed"));
  }
  Enter(now, actions);
  if (batched_) {
    const BatchPlan plan = PlanBatches(options_, budget_.plan_bytes(), request.response_bytes, 1);
    block->slot = std::max(block->slot, plan.slot);
  }
  const CallId call = Queue(*block, request, batched_);
  Admit(actions);
  return call;
}

void ScheduleMachine::OnReady(TimePoint now, CallId id, std::optional<int64_t> response_bytes,
                              std::vector<Action>& actions) {
  Enter(now, actions);
  Call* const call = calls_.Find(id);
  if (call != nullptr && call->phase == Phase::kSent) {
    if (response_bytes.has_value()) SetSize(*call, *response_bytes);
    window_.Observe(now_ - call->sent_at, call->answer_bytes);
    sent_.Remove(*call);
    blocks_.Move(*call, Phase::kReady);
  }
  Admit(actions);
}

void ScheduleMachine::OnProgress(TimePoint now, CallId id, int64_t remaining_bytes, std::vector<Action>& actions) {
  Enter(now, actions);
  Call* const call = calls_.Find(id);
  if (call != nullptr && call->phase == Phase::kInFlight && !call->aborted) {
    Uncharge(*call, CallEnd::kArrived);
    const int64_t expected_bytes = call->answer_bytes;
    SetSize(*call, remaining_bytes);
    received_bytes_ += std::max<int64_t>(expected_bytes - call->answer_bytes, 0);
    Charge(*call);
    if (granting_) stall_timers_.Start(*call, now_, budget_.link_bytes());
  }
  Admit(actions);
}

void ScheduleMachine::OnFinished(TimePoint now, CallId id, CallEnd end, std::vector<Action>& actions) {
  Enter(now, actions);
  Call* const call = calls_.Find(id);
  if (call != nullptr && call->phase != Phase::kWaiting) EndOut(*call, end);
  Admit(actions);
}

void ScheduleMachine::Cancel(TimePoint now, BlockId id, std::vector<Action>& actions) {
  Enter(now, actions);
  if (QueuedBlock* const block = blocks_.Find(id); block != nullptr && !block->cancelled) {
    block->cancelled = true;
    for (CallList* calls : {&block->in_flight, &block->sent, &block->ready}) AbortAll(*calls, actions);
    EndWaiting(*block, Action::Kind::kDrop, actions);
  }
  Admit(actions);
}

void ScheduleMachine::CancelCall(TimePoint now, CallId id, std::vector<Action>& actions) {
  Enter(now, actions);
  if (Call* const call = calls_.Find(id); call != nullptr) {
    if (call->phase == Phase::kWaiting) {
      CancelWaiting(*call, actions);
    } else {
      Abort(*call, actions);
    }
  }
  Admit(actions);
}

void ScheduleMachine::OnTimer(TimePoint now, std::vector<Action>& actions) {
  Enter(now, actions);
  Admit(actions);
}

TimePoint ScheduleMachine::NextTimer() const {
  TimePoint next = std::min({budget_.next_drain(), stall_timers_.next(), slots_.NextSlot(now_)});
  if (const QueuedBlock* block = blocks_.first_to_expire()) next = std::min(next, block->deadline);
  // With an answer on its way the link has work, and the event that ends that looks at the stragglers, too.
  if (granting_ && (blocks_.calls(Phase::kReady) > 0 ? budget_.idle() : waiting_calls() > 0)) {
    next = std::min(next, sent_.NextStraggler(window_.StraggleAfter()));
  }
  return next;
}

void ScheduleMachine::SetBudget(TimePoint now, int64_t budget_bytes, std::vector<Action>& actions) {
  Enter(now, actions);
  budget_.Set(budget_bytes);
  Admit(actions);
}

void ScheduleMachine::Reconfigure(TimePoint now, const LinkSchedule::Options& options, std::vector<Action>& actions) {
  Enter(now, actions);
  options_ = options;
  most_cost_bytes_ = MostCost(options_);
  budget_.SetProfile(options_.profile);
  slots_.SetProfile(options_.profile);
  window_.SetProfile(options_.profile);
  stall_timers_.SetProfile(options_.profile);
  Admit(actions);
}

void ScheduleMachine::SetLease(TimePoint now, const BudgetLease& lease, std::vector<Action>& actions) {
  Enter(now, actions);
  budget_.Lend(lease);
  budget_.EndLease(now_);
  Admit(actions);
}

void ScheduleMachine::Enter(TimePoint now, std::vector<Action>& actions) {
  now_ = std::max(now_, now);
  budget_.EndLease(now_);
  budget_.Drain(now_);
  // An answer that was granted and lost waits for a retransmission timeout, with nothing on the link meanwhile.
  while (Call* const call = stall_timers_.FirstStalled(now_)) {
    Uncharge(*call, CallEnd::kArrived);
    actions.push_back({Action::Kind::kStall, call->id, call->tag});
  }
  for (QueuedBlock* block = blocks_.first_to_expire(); block != nullptr && block->deadline <= now_;
       block = blocks_.first_to_expire()) {
    for (CallList* calls : {&block->sent, &block->ready}) AbortAll(*calls, actions);
    EndWaiting(*block, Action::Kind::kExpire, actions);
  }
}

// Answers before requests: they are what the link waits for. Strictly first in, first out: a smaller call further back
// would fit more often, and starve the large one in front.
void ScheduleMachine::Admit(std::vector<Action>& actions) {
  if (granting_) {
    sent_.MarkStragglers(now_, window_.StraggleAfter());
    Grant(actions);
  }
  for (QueuedBlock* block = blocks_.first_waiting(); block != nullptr && MayLeave(*block);
       block = blocks_.first_waiting()) {
    Send(*block, actions);
  }
  Check();
}

bool ScheduleMachine::MayLeave(QueuedBlock& block) {
  if (granting_) return MayGoGranted(block.waiting.front()) || MayAsk();
  if (batched_ && !slots_.MayLeave(block, now_)) return false;
  const int64_t cost_bytes = block.waiting.front().cost_bytes;
  return budget_.HasRoom(cost_bytes) || budget_.HasRoomAlone(cost_bytes);
}

// A grant costs a round trip and a packet, and is for choosing among more than the link can take.
bool ScheduleMachine::MayGoGranted(const Call& call) const {
  return !call.estimated && asked_bytes_ <= budget_.bytes() / kGrantedAtOnceShare &&
         budget_.HasRoom(call.cost_bytes + window_.HeaderBytes(sent_.size()));
}

bool ScheduleMachine::MayAsk() const {
  const int64_t young_calls = sent_.size() - sent_.stragglers();
  const int64_t ready_calls = blocks_.calls(Phase::kReady);
  const int64_t header_bytes = window_.HeaderBytes(sent_.size());
  // Of a lease, headers that are out have taken what a ready answer waits for. More would be in its way.
  if (ready_calls > 0 && budget_.idle()) return false;
  // Nothing else would let it go but a straggler, however small the budget is.
  if (young_calls == 0 && budget_.idle()) return budget_.HasRoomAlone(window_.HeaderBytes(1), header_bytes);
  const int64_t budget = budget_.bytes();
  const int64_t window = budget_.idle() ? window_.FirstRequests(budget) : window_.Requests(budget);
  return young_calls + ready_calls < window && budget_.HasRoom(header_bytes + window_.HeaderBytes(1));
}

// The oldest block with a ready answer first. Beside the grants there is room for the headers of a full window, not
// only of what is out: else small answers would fill the budget, requests would stop, and the link would run dry. More
// may be out than that after the window has shrunk.
void ScheduleMachine::Grant(std::vector<Action>& actions) {
  const int64_t full_window = window_.Requests(budget_.bytes()) + sent_.stragglers();
  const int64_t reserve_bytes = window_.HeaderBytes(std::max(full_window, sent_.size()));
  for (QueuedBlock* block = blocks_.first_ready(); block != nullptr; block = blocks_.first_ready()) {
    Call& call = block->ready.front();
    const bool alone = budget_.HasRoomAlone(call.cost_bytes, window_.HeaderBytes(sent_.size()));
    if (!alone && !budget_.HasRoom(call.cost_bytes + reserve_bytes)) return;
    blocks_.Move(call, Phase::kInFlight);
    Charge(call);
    stall_timers_.Start(call, now_, budget_.link_bytes());
    actions.push_back({Action::Kind::kGrant, call.id, call.tag});
  }
}

void ScheduleMachine::SetSize(Call& call, int64_t response_bytes) {
  asked_bytes_ -= call.cost_bytes;
  // An empty answer still costs a packet.
  call.answer_bytes = BufferCostBytes(options_.profile, std::clamp<int64_t>(response_bytes, 1, kMaxResponseBytes));
  call.cost_bytes = std::min(call.answer_bytes, most_cost_bytes_);
  asked_bytes_ += call.cost_bytes;
}

CallId ScheduleMachine::Queue(QueuedBlock& block, const CallRequest& request, bool opens_slot) {
  Call& call = calls_.Acquire();
  call.tag = request.tag;
  SetSize(call, request.response_bytes);
  call.estimated = request.estimated;
  call.opens_slot = opens_slot;
  blocks_.Push(block, call, Phase::kWaiting);
  ++submitted_calls_;
  return call.id;
}

// Eq. 20: call i belongs to batch i mod k, so that the batches are as equal as they can be.
void ScheduleMachine::QueueInBatches(QueuedBlock& block, absl::Span<const CallRequest> calls) {
  const auto by_size = [](const CallRequest& a, const CallRequest& b) { return a.response_bytes < b.response_bytes; };
  const int64_t largest = std::max_element(calls.begin(), calls.end(), by_size)->response_bytes;
  const BatchPlan plan = PlanBatches(options_, budget_.plan_bytes(), largest, static_cast<int64_t>(calls.size()));
  block.slot = plan.slot;
  const auto batches = static_cast<size_t>(plan.batches);
  for (size_t batch = 0; batch < batches; ++batch) {
    for (size_t i = batch; i < calls.size(); i += batches) Queue(block, calls[i], i == batch);
  }
}

void ScheduleMachine::Send(QueuedBlock& block, std::vector<Action>& actions) {
  Call& call = block.waiting.front();
  const bool granted = granting_ && MayGoGranted(call);
  if (granting_ && !granted) {
    blocks_.Move(call, Phase::kSent);
    sent_.Add(call, now_);
  } else {
    // Without a stall timer: the worker may think about it for as long as it likes.
    blocks_.Move(call, Phase::kInFlight);
    Charge(call);
  }
  if (batched_) slots_.Left(block, call, now_);
  actions.push_back({granted ? Action::Kind::kSendGranted : Action::Kind::kSend, call.id, call.tag});
}

void ScheduleMachine::CancelWaiting(Call& call, std::vector<Action>& actions) {
  QueuedBlock& block = *call.block;
  const auto next = std::next(block.waiting.iterator_to(call));
  // What is left of its batch still waits for the slot.
  if (call.opens_slot && next != block.waiting.end()) next->opens_slot = true;
  EndWaiting(call, Action::Kind::kDrop, actions);
  RemoveIfEnded(block);
}

void ScheduleMachine::EndWaiting(QueuedBlock& block, Action::Kind kind, std::vector<Action>& actions) {
  while (!block.waiting.empty()) EndWaiting(block.waiting.front(), kind, actions);
  RemoveIfEnded(block);
}

void ScheduleMachine::EndWaiting(Call& call, Action::Kind kind, std::vector<Action>& actions) {
  blocks_.Take(call);
  actions.push_back({kind, call.id, call.tag});
  End(call);
}

void ScheduleMachine::AbortAll(CallList& calls, std::vector<Action>& actions) {
  for (auto next = calls.begin(); next != calls.end();) Abort(*next++, actions);
}

// Tells the caller, once. A call that was not granted never will be: it goes to those in flight, charged for the
// headers that may still come, since the room that was kept for them is gone.
void ScheduleMachine::Abort(Call& call, std::vector<Action>& actions) {
  if (std::exchange(call.aborted, true)) return;
  actions.push_back({Action::Kind::kAbort, call.id, call.tag});
  stall_timers_.Stop(call);
  if (call.phase == Phase::kInFlight) return;
  if (call.phase == Phase::kSent) ChargeHeaders(call);
  blocks_.Move(call, Phase::kInFlight);
}

void ScheduleMachine::EndOut(Call& call, CallEnd end) {
  QueuedBlock& block = *call.block;
  if (call.phase == Phase::kSent) ChargeHeaders(call);
  Uncharge(call, end);
  if (end == CallEnd::kArrived) received_bytes_ += call.answer_bytes;
  blocks_.Take(call);
  End(call);
  RemoveIfEnded(block);
}

void ScheduleMachine::End(Call& call) {
  asked_bytes_ -= call.cost_bytes;
  calls_.Release(call);
  ++ended_calls_;
}

void ScheduleMachine::Charge(Call& call) {
  call.charged_bytes = call.cost_bytes;
  budget_.Charge(call.charged_bytes);
}

void ScheduleMachine::ChargeHeaders(Call& call) {
  sent_.Remove(call);
  call.charged_bytes = window_.HeaderBytes(1);
  budget_.Charge(call.charged_bytes);
}

void ScheduleMachine::Uncharge(Call& call, CallEnd end) {
  stall_timers_.Stop(call);
  const int64_t charged_bytes = std::exchange(call.charged_bytes, 0);
  if (charged_bytes == 0) return;
  if (end == CallEnd::kAborted) {
    budget_.ReleaseAborted(now_, charged_bytes);
  } else {
    budget_.Release(charged_bytes);
  }
}

void ScheduleMachine::RemoveIfEnded(QueuedBlock& block) {
  if (!block.ended()) return;
  slots_.Ended(block);
  blocks_.Remove(block);
}

}  // namespace sluice
