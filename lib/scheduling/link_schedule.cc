#include "sluice/link_schedule.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "sluice/plan.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/scheduling/batch_plan.h"
#include "lib/scheduling/block_queue.h"
#include "lib/scheduling/budget.h"
#include "lib/scheduling/call_table.h"
#include "lib/scheduling/grant_window.h"
#include "lib/scheduling/saturating_add.h"

namespace sluice {
namespace {

absl::Status CheckSize(int64_t response_bytes) {
  if (response_bytes >= 0 && response_bytes <= kMaxResponseBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("response_bytes: ", response_bytes, " is outside of 0 to ", kMaxResponseBytes));
}

absl::Status CheckAtLeastOne(absl::string_view field, int64_t value) {
  if (value >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", value, " is below 1"));
}

}  // namespace

// The order of an event: Enter does what was due, then the event itself, then Admit lets through what fits now.
class LinkSchedule::Impl {
 public:
  explicit Impl(const Options& options)
      : options_(options),
        batched_(options.discipline == Discipline::kBatches),
        granting_(options.discipline == Discipline::kGrants),
        jitter_(absl::ToChronoNanoseconds(options.profile.timer_jitter)),
        stall_timeout_(absl::ToChronoNanoseconds(options.stall_timeout)),
        budget_(options),
        window_(options.profile) {}

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
  absl::Status SetBudget(TimePoint now, int64_t budget_bytes, std::vector<Action>& actions);
  ScheduleState State() const;
  const Options& options() const { return options_; }

 private:
  absl::Status CheckSubmit(TimePoint now, absl::Span<const CallRequest> calls, TimePoint deadline) const;
  void Enter(TimePoint now, std::vector<Action>& actions);
  void Admit(std::vector<Action>& actions);

  bool MayLeave(QueuedBlock& block);
  void Grant(std::vector<Action>& actions);
  void Stall(std::vector<Action>& actions);
  std::chrono::nanoseconds TransferTime(int64_t cost_bytes) const;
  int64_t HeaderBytes(int64_t requests) const { return granting_ ? requests * kReadyHeaderBytes : 0; }
  int64_t Cost(int64_t response_bytes) const;
  CallId Queue(QueuedBlock& block, const CallRequest& request, bool opens_slot);
  void QueueInBatches(QueuedBlock& block, absl::Span<const CallRequest> calls);
  void Send(QueuedBlock& block, std::vector<Action>& actions);
  void EndWaiting(QueuedBlock& block, Action::Kind kind, std::vector<Action>& actions);
  void EndWaiting(Call& call, Action::Kind kind, std::vector<Action>& actions);
  void AbortAll(CallList& calls, std::vector<Action>& actions);
  void Abort(Call& call, std::vector<Action>& actions);
  void EndOut(Call& call, CallEnd end);
  void Charge(Call& call);
  void Uncharge(Call& call, CallEnd end);
  void RemoveIfEnded(QueuedBlock& block);
  void Check() const;

  const Options options_;
  const bool batched_;
  const bool granting_;
  const std::chrono::nanoseconds jitter_;
  const std::chrono::nanoseconds stall_timeout_;

  TimePoint now_ = TimePoint::min();  // of the last event
  Budget budget_;
  GrantWindow window_;
  CallTable calls_;
  BlockQueue blocks_;
  QueuedBlock* turn_ = nullptr;  // batches: the one block that may send until it ends

  // Grants: charged, the first to stall first.
  boost::intrusive::list<Call, boost::intrusive::base_hook<StallHook>, boost::intrusive::constant_time_size<false>>
      stalling_;

  int64_t in_flight_calls_ = 0;
  int64_t sent_calls_ = 0;   // grants: not ready yet
  int64_t ready_calls_ = 0;  // grants: not granted yet
  int64_t waiting_calls_ = 0;
  int64_t submitted_calls_ = 0;
  int64_t ended_calls_ = 0;
};

absl::StatusOr<BlockId> LinkSchedule::Impl::Submit(TimePoint now, absl::Span<const CallRequest> calls,
                                                   TimePoint deadline, std::vector<Action>& actions) {
  if (absl::Status status = CheckSubmit(now, calls, deadline); !status.ok()) return status;
  Enter(now, actions);
  QueuedBlock& block = blocks_.Add(deadline);
  const BlockId id = block.id;
  if (batched_) {
    QueueInBatches(block, calls);
  } else {
    for (const CallRequest& call : calls) Queue(block, call, false);
  }
  Admit(actions);
  return id;
}

std::chrono::nanoseconds LinkSchedule::Impl::TransferTime(int64_t cost_bytes) const {
  const absl::Duration time =
      absl::Seconds(static_cast<double>(cost_bytes) / options_.profile.capacity_bytes_per_second);
  return absl::ToChronoNanoseconds(time);
}

absl::Status LinkSchedule::Impl::CheckSubmit(TimePoint now, absl::Span<const CallRequest> calls,
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
  if (count > options_.queue_limit - waiting_calls_) {
    return absl::ResourceExhaustedError(absl::StrCat("the queue has no room for ", count, " calls: ", waiting_calls_,
                                                     " wait, queue_limit is ", options_.queue_limit));
  }
  return absl::OkStatus();
}

absl::StatusOr<CallId> LinkSchedule::Impl::Add(TimePoint now, BlockId id, CallRequest request,
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
    const BatchPlan plan = PlanBatches(options_.profile, budget_.bytes(), request.response_bytes, 1);
    block->slot = std::max(block->slot, plan.slot);
  }
  const CallId call = Queue(*block, request, batched_);
  Admit(actions);
  return call;
}

void LinkSchedule::Impl::OnReady(TimePoint now, CallId id, std::optional<int64_t> response_bytes,
                                 std::vector<Action>& actions) {
  Enter(now, actions);
  Call* const call = calls_.Find(id);
  if (call != nullptr && call->phase == Call::Phase::kSent) {
    if (response_bytes.has_value()) call->cost_bytes = Cost(*response_bytes);
    window_.Observe(now_ - call->since, call->cost_bytes);
    blocks_.Take(*call);
    blocks_.Push(*call->block, *call, Call::Phase::kReady);
    --sent_calls_;
    ++ready_calls_;
  }
  Admit(actions);
}

void LinkSchedule::Impl::OnProgress(TimePoint now, CallId id, int64_t remaining_bytes, std::vector<Action>& actions) {
  Enter(now, actions);
  Call* const call = calls_.Find(id);
  // A stalled or aborted call has given its budget back, and takes none again.
  if (call != nullptr && call->charged_bytes > 0 && !call->aborted) {
    Uncharge(*call, CallEnd::kArrived);
    call->cost_bytes = Cost(remaining_bytes);
    Charge(*call);
  }
  Admit(actions);
}

void LinkSchedule::Impl::OnFinished(TimePoint now, CallId id, CallEnd end, std::vector<Action>& actions) {
  Enter(now, actions);
  Call* const call = calls_.Find(id);
  if (call != nullptr && call->phase != Call::Phase::kWaiting) EndOut(*call, end);
  Admit(actions);
}

void LinkSchedule::Impl::Cancel(TimePoint now, BlockId id, std::vector<Action>& actions) {
  Enter(now, actions);
  if (QueuedBlock* const block = blocks_.Find(id); block != nullptr && !block->cancelled) {
    block->cancelled = true;
    for (CallList* calls : {&block->in_flight, &block->sent, &block->ready}) AbortAll(*calls, actions);
    EndWaiting(*block, Action::Kind::kDrop, actions);
  }
  Admit(actions);
}

void LinkSchedule::Impl::CancelCall(TimePoint now, CallId id, std::vector<Action>& actions) {
  Enter(now, actions);
  if (Call* const call = calls_.Find(id); call != nullptr) {
    if (call->phase == Call::Phase::kWaiting) {
      QueuedBlock& block = *call->block;
      EndWaiting(*call, Action::Kind::kDrop, actions);
      RemoveIfEnded(block);
    } else {
      Abort(*call, actions);
    }
  }
  Admit(actions);
}

void LinkSchedule::Impl::OnTimer(TimePoint now, std::vector<Action>& actions) {
  Enter(now, actions);
  Admit(actions);
}

TimePoint LinkSchedule::Impl::NextTimer() const {
  TimePoint next = budget_.next_drain();
  if (const QueuedBlock* block = blocks_.first_to_expire()) next = std::min(next, block->deadline);
  if (!stalling_.empty()) next = std::min(next, stalling_.front().since);
  // A slot that has come and still holds its call back waits for room, not for time.
  if (turn_ != nullptr && !turn_->waiting.empty() && turn_->waiting.front().opens_slot && turn_->next_slot > now_) {
    next = std::min(next, turn_->next_slot);
  }
  return next;
}

absl::Status LinkSchedule::Impl::SetBudget(TimePoint now, int64_t budget_bytes, std::vector<Action>& actions) {
  if (absl::Status status = CheckAtLeastOne("budget_bytes", budget_bytes); !status.ok()) return status;
  Enter(now, actions);
  budget_.Set(budget_bytes);
  Admit(actions);
  return absl::OkStatus();
}

ScheduleState LinkSchedule::Impl::State() const {
  return {.budget_bytes = budget_.bytes(),
          .in_flight_bytes = budget_.in_flight_bytes(),
          .in_flight_calls = in_flight_calls_,
          .ungranted_calls = sent_calls_ + ready_calls_,
          .grant_window = granting_ ? window_.Requests(budget_.bytes()) : 0,
          .waiting_calls = waiting_calls_,
          .blocks = blocks_.size(),
          .submitted_calls = submitted_calls_,
          .ended_calls = ended_calls_};
}

void LinkSchedule::Impl::Enter(TimePoint now, std::vector<Action>& actions) {
  now_ = std::max(now_, now);
  budget_.Drain(now_);
  Stall(actions);
  for (QueuedBlock* block = blocks_.first_to_expire(); block != nullptr && block->deadline <= now_;
       block = blocks_.first_to_expire()) {
    for (CallList* calls : {&block->sent, &block->ready}) AbortAll(*calls, actions);
    EndWaiting(*block, Action::Kind::kExpire, actions);
  }
}

// Answers before requests: they are what the link waits for. Strictly first in, first out: a smaller call further back
// would fit more often, and starve the large one in front.
void LinkSchedule::Impl::Admit(std::vector<Action>& actions) {
  if (granting_) Grant(actions);
  for (QueuedBlock* block = blocks_.first_waiting(); block != nullptr && MayLeave(*block);
       block = blocks_.first_waiting()) {
    Send(*block, actions);
  }
  Check();
}

bool LinkSchedule::Impl::MayLeave(QueuedBlock& block) {
  const Call& call = block.waiting.front();
  if (batched_) {
    if (turn_ == nullptr) {
      turn_ = &block;
      block.next_slot = now_;
    }
    if (turn_ != &block || (call.opens_slot && block.next_slot > now_)) return false;
  }
  if (!granting_) return budget_.Fits(call.cost_bytes);
  // All headers that may still come, with this one's, and what was granted fit the buffer together.
  return sent_calls_ + ready_calls_ < window_.Requests(budget_.bytes()) &&
         (budget_.Fits(HeaderBytes(sent_calls_ + 1)) || sent_calls_ + ready_calls_ == 0);
}

// The oldest block with a ready answer first; a straggler that is not ready holds nobody up, and no budget.
void LinkSchedule::Impl::Grant(std::vector<Action>& actions) {
  const int64_t reserved_bytes = HeaderBytes(std::max(window_.Requests(budget_.bytes()), sent_calls_));
  for (QueuedBlock* block = blocks_.first_ready(); block != nullptr; block = blocks_.first_ready()) {
    Call& call = block->ready.front();
    if (!budget_.Fits(call.cost_bytes, reserved_bytes)) return;
    blocks_.Take(call);
    --ready_calls_;
    blocks_.Push(*block, call, Call::Phase::kInFlight);
    ++in_flight_calls_;
    Charge(call);
    actions.push_back({Action::Kind::kGrant, call.id, call.tag});
  }
}

// An answer that was granted and lost waits for a retransmission timeout, with nothing on the link meanwhile.
void LinkSchedule::Impl::Stall(std::vector<Action>& actions) {
  while (!stalling_.empty() && stalling_.front().since <= now_) {
    Call& call = stalling_.front();
    Uncharge(call, CallEnd::kArrived);
    actions.push_back({Action::Kind::kStall, call.id, call.tag});
  }
}

// Of the buffer. An empty answer still costs a packet.
int64_t LinkSchedule::Impl::Cost(int64_t response_bytes) const {
  return BufferCostBytes(options_.profile, std::clamp<int64_t>(response_bytes, 1, kMaxResponseBytes));
}

CallId LinkSchedule::Impl::Queue(QueuedBlock& block, const CallRequest& request, bool opens_slot) {
  Call& call = calls_.Acquire();
  call.tag = request.tag;
  call.cost_bytes = Cost(request.response_bytes);
  call.opens_slot = opens_slot;
  blocks_.Push(block, call, Call::Phase::kWaiting);
  ++submitted_calls_;
  ++waiting_calls_;
  return call.id;
}

// Eq. 20: call i belongs to batch i mod k, so that the batches are as equal as they can be.
void LinkSchedule::Impl::QueueInBatches(QueuedBlock& block, absl::Span<const CallRequest> calls) {
  const auto by_size = [](const CallRequest& a, const CallRequest& b) { return a.response_bytes < b.response_bytes; };
  const int64_t largest = std::max_element(calls.begin(), calls.end(), by_size)->response_bytes;
  const BatchPlan plan = PlanBatches(options_.profile, budget_.bytes(), largest, static_cast<int64_t>(calls.size()));
  block.slot = plan.slot;
  const auto batches = static_cast<size_t>(plan.batches);
  for (size_t batch = 0; batch < batches; ++batch) {
    for (size_t i = batch; i < calls.size(); i += batches) Queue(block, calls[i], i == batch);
  }
}

void LinkSchedule::Impl::Send(QueuedBlock& block, std::vector<Action>& actions) {
  Call& call = block.waiting.front();
  blocks_.Take(call);
  --waiting_calls_;
  if (granting_) {
    blocks_.Push(block, call, Call::Phase::kSent);
    ++sent_calls_;
    call.since = now_;
  } else {
    blocks_.Push(block, call, Call::Phase::kInFlight);
    ++in_flight_calls_;
    Charge(call);
  }
  if (batched_) {
    // T~ allows for a timer that is late by the jitter, so up to that the slots stay where the paper has them and
    // lateness does not add up. Whatever leaves later than that moves the slots behind it, or two batches would meet in
    // the buffer. Rejected: catching up (they meet), and T~ after the actual time always (every slot would cost
    // its own lateness).
    if (call.opens_slot) block.next_slot = SaturatingAdd(block.next_slot, block.slot);
    block.next_slot = std::max(block.next_slot, SaturatingAdd(now_ - jitter_, block.slot));
  }
  actions.push_back({Action::Kind::kSend, call.id, call.tag});
}

void LinkSchedule::Impl::EndWaiting(QueuedBlock& block, Action::Kind kind, std::vector<Action>& actions) {
  while (!block.waiting.empty()) EndWaiting(block.waiting.front(), kind, actions);
  RemoveIfEnded(block);
}

void LinkSchedule::Impl::EndWaiting(Call& call, Action::Kind kind, std::vector<Action>& actions) {
  blocks_.Take(call);
  actions.push_back({kind, call.id, call.tag});
  calls_.Release(call);
  --waiting_calls_;
  ++ended_calls_;
}

void LinkSchedule::Impl::AbortAll(CallList& calls, std::vector<Action>& actions) {
  for (auto next = calls.begin(); next != calls.end();) Abort(*next++, actions);
}

// Tells the caller, once. A call that was not granted never will be: it goes to those in flight, at no charge.
void LinkSchedule::Impl::Abort(Call& call, std::vector<Action>& actions) {
  if (std::exchange(call.aborted, true)) return;
  actions.push_back({Action::Kind::kAbort, call.id, call.tag});
  if (call.phase == Call::Phase::kInFlight) return;
  --(call.phase == Call::Phase::kSent ? sent_calls_ : ready_calls_);
  blocks_.Take(call);
  blocks_.Push(*call.block, call, Call::Phase::kInFlight);
  ++in_flight_calls_;
}

void LinkSchedule::Impl::EndOut(Call& call, CallEnd end) {
  QueuedBlock& block = *call.block;
  switch (call.phase) {
    case Call::Phase::kSent:
      --sent_calls_;
      break;
    case Call::Phase::kReady:
      --ready_calls_;
      break;
    default:
      --in_flight_calls_;
      Uncharge(call, end);
  }
  blocks_.Take(call);
  calls_.Release(call);
  ++ended_calls_;
  RemoveIfEnded(block);
}

void LinkSchedule::Impl::Charge(Call& call) {
  call.charged_bytes = call.cost_bytes;
  budget_.Charge(call.charged_bytes);
  if (!granting_) return;
  // In the order of the charges, so that the first one is always the next one; later than its own time at the most by
  // that of the one before.
  call.since = SaturatingAdd(now_, stall_timeout_ + TransferTime(call.cost_bytes));
  if (!stalling_.empty()) call.since = std::max(call.since, stalling_.back().since);
  stalling_.push_back(call);
}

void LinkSchedule::Impl::Uncharge(Call& call, CallEnd end) {
  if (call.StallHook::is_linked()) stalling_.erase(stalling_.iterator_to(call));
  const int64_t charged_bytes = std::exchange(call.charged_bytes, 0);
  if (charged_bytes == 0) return;
  if (end == CallEnd::kAborted) {
    budget_.ReleaseAborted(now_, charged_bytes);
  } else {
    budget_.Release(charged_bytes);
  }
}

void LinkSchedule::Impl::RemoveIfEnded(QueuedBlock& block) {
  if (!block.ended()) return;
  if (turn_ == &block) turn_ = nullptr;
  blocks_.Remove(block);
}

void LinkSchedule::Impl::Check() const {
  [[maybe_unused]] const int64_t out_calls = sent_calls_ + ready_calls_ + in_flight_calls_;
  assert(submitted_calls_ == waiting_calls_ + out_calls + ended_calls_);
  assert(waiting_calls_ >= 0 && in_flight_calls_ >= 0 && sent_calls_ >= 0 && ready_calls_ >= 0);
  assert(budget_.in_flight_bytes() >= 0);
  assert(out_calls > 0 || budget_.next_drain() < TimePoint::max() || budget_.in_flight_bytes() == 0);
  assert((blocks_.size() == 0) == (waiting_calls_ + out_calls == 0));
}

absl::StatusOr<LinkSchedule> LinkSchedule::Create(const Options& options) {
  if (absl::Status status = options.profile.Validate(); !status.ok()) return status;
  if (absl::Status status = CheckAtLeastOne("queue_limit", options.queue_limit); !status.ok()) return status;
  if (options.stall_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("stall_timeout: ", absl::FormatDuration(options.stall_timeout), " is not above 0"));
  }
  if (options.budget_bytes.has_value()) {
    if (absl::Status status = CheckAtLeastOne("budget_bytes", *options.budget_bytes); !status.ok()) return status;
  }
  return LinkSchedule(std::make_unique<Impl>(options));
}

LinkSchedule::LinkSchedule(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LinkSchedule::LinkSchedule(LinkSchedule&&) noexcept = default;
LinkSchedule& LinkSchedule::operator=(LinkSchedule&&) noexcept = default;
LinkSchedule::~LinkSchedule() = default;

absl::StatusOr<BlockId> LinkSchedule::Submit(TimePoint now, absl::Span<const CallRequest> calls, TimePoint deadline,
                                             std::vector<Action>& actions) {
  return impl_->Submit(now, calls, deadline, actions);
}

absl::StatusOr<CallId> LinkSchedule::Add(TimePoint now, BlockId block, CallRequest call, std::vector<Action>& actions) {
  return impl_->Add(now, block, call, actions);
}

void LinkSchedule::OnReady(TimePoint now, CallId call, std::optional<int64_t> response_bytes,
                           std::vector<Action>& actions) {
  impl_->OnReady(now, call, response_bytes, actions);
}

void LinkSchedule::OnProgress(TimePoint now, CallId call, int64_t remaining_bytes, std::vector<Action>& actions) {
  impl_->OnProgress(now, call, remaining_bytes, actions);
}

void LinkSchedule::OnFinished(TimePoint now, CallId call, CallEnd end, std::vector<Action>& actions) {
  impl_->OnFinished(now, call, end, actions);
}

void LinkSchedule::Cancel(TimePoint now, BlockId block, std::vector<Action>& actions) {
  impl_->Cancel(now, block, actions);
}

void LinkSchedule::CancelCall(TimePoint now, CallId call, std::vector<Action>& actions) {
  impl_->CancelCall(now, call, actions);
}

void LinkSchedule::OnTimer(TimePoint now, std::vector<Action>& actions) {
  impl_->OnTimer(now, actions);
}

TimePoint LinkSchedule::NextTimer() const {
  return impl_->NextTimer();
}

absl::Status LinkSchedule::SetBudget(TimePoint now, int64_t budget_bytes, std::vector<Action>& actions) {
  return impl_->SetBudget(now, budget_bytes, actions);
}

ScheduleState LinkSchedule::State() const {
  return impl_->State();
}

const LinkSchedule::Options& LinkSchedule::options() const {
  return impl_->options();
}

}  // namespace sluice
