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
        jitter_(absl::ToChronoNanoseconds(options.profile.timer_jitter)),
        budget_(options) {}

  absl::StatusOr<BlockId> Submit(TimePoint now, absl::Span<const CallRequest> calls, TimePoint deadline,
                                 std::vector<Action>& actions);
  absl::Status Add(TimePoint now, BlockId id, CallRequest request, std::vector<Action>& actions);
  void OnFinished(TimePoint now, CallId id, CallEnd end, std::vector<Action>& actions);
  void Cancel(TimePoint now, BlockId id, std::vector<Action>& actions);
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
  void Queue(QueuedBlock& block, const CallRequest& request, bool opens_slot);
  void QueueInBatches(QueuedBlock& block, absl::Span<const CallRequest> calls);
  void Send(QueuedBlock& block, std::vector<Action>& actions);
  void EndWaiting(QueuedBlock& block, Action::Kind kind, std::vector<Action>& actions);
  void EndInFlight(Call& call, CallEnd end);
  void RemoveIfEnded(QueuedBlock& block);
  void Check() const;

  const Options options_;
  const bool batched_;
  const std::chrono::nanoseconds jitter_;

  TimePoint now_ = TimePoint::min();  // of the last event
  Budget budget_;
  CallTable calls_;
  BlockQueue blocks_;
  QueuedBlock* turn_ = nullptr;  // batches: the one block that may send until it ends

  int64_t in_flight_calls_ = 0;
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

absl::Status LinkSchedule::Impl::Add(TimePoint now, BlockId id, CallRequest request, std::vector<Action>& actions) {
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
  Queue(*block, request, batched_);
  Admit(actions);
  return absl::OkStatus();
}

void LinkSchedule::Impl::OnFinished(TimePoint now, CallId id, CallEnd end, std::vector<Action>& actions) {
  Enter(now, actions);
  Call* const call = calls_.Find(id);
  if (call != nullptr && call->phase == Call::Phase::kInFlight) EndInFlight(*call, end);
  Admit(actions);
}

void LinkSchedule::Impl::Cancel(TimePoint now, BlockId id, std::vector<Action>& actions) {
  Enter(now, actions);
  if (QueuedBlock* const block = blocks_.Find(id); block != nullptr && !block->cancelled) {
    block->cancelled = true;
    for (const Call& call : block->in_flight) actions.push_back({Action::Kind::kAbort, call.id, call.tag});
    EndWaiting(*block, Action::Kind::kDrop, actions);
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
          .waiting_calls = waiting_calls_,
          .blocks = blocks_.size(),
          .submitted_calls = submitted_calls_,
          .ended_calls = ended_calls_};
}

void LinkSchedule::Impl::Enter(TimePoint now, std::vector<Action>& actions) {
  now_ = std::max(now_, now);
  budget_.Drain(now_);
  for (QueuedBlock* block = blocks_.first_to_expire(); block != nullptr && block->deadline <= now_;
       block = blocks_.first_to_expire()) {
    EndWaiting(*block, Action::Kind::kExpire, actions);
  }
}

// Strictly first in, first out: a smaller call further back would fit more often, and starve the large one in front.
void LinkSchedule::Impl::Admit(std::vector<Action>& actions) {
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
  return budget_.Fits(call.cost_bytes);
}

void LinkSchedule::Impl::Queue(QueuedBlock& block, const CallRequest& request, bool opens_slot) {
  Call& call = calls_.Acquire();
  call.tag = request.tag;
  call.cost_bytes = BufferCostBytes(options_.profile, std::max<int64_t>(request.response_bytes, 1));
  call.opens_slot = opens_slot;
  blocks_.PushWaiting(block, call);
  ++submitted_calls_;
  ++waiting_calls_;
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
  Call& call = blocks_.PopWaiting(block);
  call.phase = Call::Phase::kInFlight;
  block.in_flight.push_back(call);
  --waiting_calls_;
  ++in_flight_calls_;
  budget_.Charge(call.cost_bytes);
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
  while (!block.waiting.empty()) {
    Call& call = blocks_.PopWaiting(block);
    actions.push_back({kind, call.id, call.tag});
    calls_.Release(call);
    --waiting_calls_;
    ++ended_calls_;
  }
  RemoveIfEnded(block);
}

void LinkSchedule::Impl::EndInFlight(Call& call, CallEnd end) {
  QueuedBlock& block = *call.block;
  block.in_flight.erase(block.in_flight.iterator_to(call));
  if (end == CallEnd::kAborted) {
    budget_.ReleaseAborted(now_, call.cost_bytes);
  } else {
    budget_.Release(call.cost_bytes);
  }
  calls_.Release(call);
  --in_flight_calls_;
  ++ended_calls_;
  RemoveIfEnded(block);
}

void LinkSchedule::Impl::RemoveIfEnded(QueuedBlock& block) {
  if (!block.ended()) return;
  if (turn_ == &block) turn_ = nullptr;
  blocks_.Remove(block);
}

void LinkSchedule::Impl::Check() const {
  assert(submitted_calls_ == waiting_calls_ + in_flight_calls_ + ended_calls_);
  assert(waiting_calls_ >= 0 && in_flight_calls_ >= 0 && budget_.in_flight_bytes() >= 0);
  assert((budget_.in_flight_bytes() == 0) == (in_flight_calls_ == 0 && budget_.next_drain() == TimePoint::max()));
  assert((blocks_.size() == 0) == (waiting_calls_ + in_flight_calls_ == 0));
}

absl::StatusOr<LinkSchedule> LinkSchedule::Create(const Options& options) {
  if (absl::Status status = options.profile.Validate(); !status.ok()) return status;
  if (absl::Status status = CheckAtLeastOne("queue_limit", options.queue_limit); !status.ok()) return status;
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

absl::Status LinkSchedule::Add(TimePoint now, BlockId block, CallRequest call, std::vector<Action>& actions) {
  return impl_->Add(now, block, call, actions);
}

void LinkSchedule::OnFinished(TimePoint now, CallId call, CallEnd end, std::vector<Action>& actions) {
  impl_->OnFinished(now, call, end, actions);
}

void LinkSchedule::Cancel(TimePoint now, BlockId block, std::vector<Action>& actions) {
  impl_->Cancel(now, block, actions);
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
