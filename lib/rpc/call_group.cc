#include "lib/rpc/call_group.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include <grpc/support/time.h>

#include "sluice/plan.h"

#include "lib/rpc/clock.h"
#include "lib/rpc/granted_rpc.h"
#include "lib/rpc/rpc_ending.h"
#include "lib/telemetry/aggregator_metrics.h"

namespace sluice {
namespace {

// A deadline on the monotonic clock, whatever the wall clock does meanwhile.
gpr_timespec After(TimePoint::duration span) {
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(span).count();
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(nanoseconds, GPR_TIMESPAN));
}

// What CANCELLED means. A worker that says so, though nobody here has cancelled, has failed: it may be shutting down. A
// call that was aborted when its time was over has run into its deadline: the schedule's timer ends the calls of the
// block that wait, and that ends the block, a moment before gRPC's coarser timer ends this one.
grpc::Status MeaningOf(const grpc::Status& status, bool aborted, bool deadline_passed) {
  if (status.error_code() != grpc::StatusCode::CANCELLED) return status;
  if (aborted && deadline_passed) return {grpc::StatusCode::DEADLINE_EXCEEDED, "the deadline passed"};
  if (aborted) return status;
  return {grpc::StatusCode::UNAVAILABLE, "the worker cancelled the call: " + status.error_message()};
}

absl::Status ToAbsl(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace

// One call: scheduled, sent, answered. Owned by its CallGroup.
class CallGroup::Call final : public ScheduledCall, private GrantedRpc::Events {
 public:
  Call(CallGroup& group, GroupCall spec) : group_(group), spec_(std::move(spec)), submitted_(Now()) {}

  size_t spec_tag() const { return spec_.tag; }

  CallRequest Request() {
    return {.response_bytes = std::min(spec_.response_bytes + kRpcOverheadBytes, kMaxResponseBytes),
            .tag = ScheduledCall::tag(),
            .estimated = spec_.estimated};
  }

  absl::Status AddTo(BlockId block) {
    CallId id;
    absl::Status status = link().Add(block, Request(), id);
    if (status.ok()) id_ = id;
    return status;
  }

  void CancelIfSent() { link().CancelCall(id_); }

  void Send(CallId id, bool held) override {
    id_ = id;
    sent_ = Now();
    metrics().ObserveQueueWait(absl::FromChrono(sent_ - submitted_));
    rpc_ = spec_.server_streaming ? GrantedRpc::ServerStreaming(*this, held) : GrantedRpc::Unary(*this, held);
    const auto timeout = absl::ToChronoNanoseconds(spec_.timeout);
    rpc_->context().set_deadline(After(std::min<TimePoint::duration>(timeout, group_.deadline_ - sent_)));
    if (spec_.metadata != nullptr) {
      for (const auto& [key, value] : *spec_.metadata) rpc_->context().AddMetadata(key, value);
    }
    rpc_->Prepare(*spec_.channels->stub(spec_.worker, held), spec_.method, spec_.request, link().completion_queue());
    prepared_ = true;
    if (aborted_) rpc_->Cancel();
    if (group_.handlers_.on_sent) group_.handlers_.on_sent(spec_.tag);
    if (!held) Ask();
    rpc_->Start();
  }

  void Grant() override {
    granted_ = Now();
    Ask();
    rpc_->Grant();
  }

  void EndUnsent(absl::Status reason) override {
    const bool expired = absl::IsDeadlineExceeded(reason);
    metrics().CountSruRequest(expired ? SruOutcome::kExpired : SruOutcome::kCancelled);
    if (expired) metrics().CountTimeout(TimeoutKind::kQueueDeadline);
    // The verdict is on an answer; there is none.
    group_.handlers_.on_answer(group_, spec_.tag, std::move(reason)).IgnoreError();
    group_.OnCallEnded();
  }

  // It may come before Send, on another thread. Whichever comes second, this or Send's look at `aborted_`, cancels.
  void Abort() override {
    aborted_ = true;
    if (prepared_) rpc_->Cancel();
  }

  std::shared_ptr<void> Hold() override { return group_.shared_from_this(); }

 private:
  // A call that is aborted may end while it is granted.
  enum class Stage { kUnasked, kAsked, kEnded };

  void Ask() {
    Stage unasked = Stage::kUnasked;
    if (stage_.compare_exchange_strong(unasked, Stage::kAsked)) {
      link().workers().OnAsked(row(), Now(), spec_.server_streaming);
    }
  }

  void OnReady() override {
    ready_after_ = absl::FromChrono(Now() - sent_);
    metrics().ObserveReady(ready_after_);
    if (group_.handlers_.on_ready) group_.handlers_.on_ready(spec_.tag);
    std::optional<int64_t> bytes = rpc_->AnnouncedResponseBytes();
    if (bytes.has_value()) *bytes = std::min(*bytes, kMaxResponseBytes) + kRpcOverheadBytes;
    link().Ready(id_, bytes);
  }

  void OnMessage(grpc::ByteBuffer& message) override {
    if (!spec_.server_streaming) {
      answer_.Swap(&message);
      return;
    }
    received_bytes_ += static_cast<int64_t>(message.Length());
    const auto next_bytes = static_cast<int64_t>(message.Length());
    group_.handlers_.on_message(group_, spec_.tag, message);
    // What is not known to come may come: a message like this one.
    link().Progress(id_, std::max(spec_.response_bytes - received_bytes_, next_bytes) + kRpcOverheadBytes);
  }

  // The answer is handled before the schedule hears of the end: a retry that it adds keeps the block, and so its place
  // in the queue, alive.
  void OnEnd(const grpc::Status& ended) override {
    const TimePoint now = Now();
    const absl::Duration transfer = absl::FromChrono(now - std::max(sent_, granted_.load()));
    metrics().ObserveSruTransfer(transfer);
    const grpc::Status status = MeaningOf(ended, aborted_, now >= group_.deadline_);
    TellOfWorker(status.ok(), now, transfer);
    absl::StatusOr<grpc::ByteBuffer> answer = std::move(answer_);
    if (!status.ok()) answer = ToAbsl(status);
    const absl::Status verdict = group_.handlers_.on_answer(group_, spec_.tag, std::move(answer));
    const bool corrupt = status.ok() && !verdict.ok();
    const SruOutcome outcome = corrupt ? SruOutcome::kCorrupt : OutcomeOf(status.error_code());
    metrics().CountSruRequest(outcome);
    if (outcome == SruOutcome::kRpcDeadline) metrics().CountTimeout(TimeoutKind::kRpcDeadline);
    link().Finish(id_, HowEnded(status.error_code()));
    group_.OnCallEnded();
  }

  void TellOfWorker(bool answered, TimePoint now, absl::Duration transfer) {
    WorkerTable& workers = link().workers();
    if (stage_.exchange(Stage::kEnded) == Stage::kAsked) {
      workers.OnEnded(row(), now, received_bytes_ + static_cast<int64_t>(answer_.Length()), rpc_->context().peer());
    }
    if (answered) workers.OnAnswered(row(), ready_after_, transfer);
    const std::optional<TcpReport> report = rpc_->Report();
    if (!report.has_value()) return;
    const auto news = workers.OnReport(row(), report->port, {report->retransmits, report->rtos});
    metrics().CountWorkerReport(WorkerReport::kRetransmit, news.retransmits);
    metrics().CountWorkerReport(WorkerReport::kRto, news.rtos);
  }

  size_t row() const { return spec_.channels->row(spec_.worker); }
  LinkDriver& link() { return group_.link_; }
  AggregatorMetrics& metrics() { return link().metrics(); }

  CallGroup& group_;
  const GroupCall spec_;
  const TimePoint submitted_;
  TimePoint sent_;
  std::atomic<TimePoint> granted_ = TimePoint();  // where it was held; an abort may end it on another thread meanwhile
  std::atomic<CallId> id_ = CallId{};             // until it is known, one that the schedule does not know
  std::atomic<Stage> stage_ = Stage::kUnasked;
  absl::Duration ready_after_;
  std::atomic<bool> prepared_ = false;
  std::atomic<bool> aborted_ = false;
  std::unique_ptr<GrantedRpc> rpc_;  // from Send on: a block may have thousands of calls that wait
  grpc::ByteBuffer answer_;
  int64_t received_bytes_ = 0;
};

CallGroup::CallGroup(LinkDriver& link, TimePoint deadline, Handlers handlers)
    : link_(link), deadline_(deadline), handlers_(std::move(handlers)) {}

CallGroup::~CallGroup() = default;

absl::StatusOr<std::shared_ptr<CallGroup>> CallGroup::Start(LinkDriver& link, std::vector<GroupCall> calls,
                                                            TimePoint deadline, Handlers handlers) {
  std::shared_ptr<CallGroup> group(new CallGroup(link, deadline, std::move(handlers)));
  std::vector<CallRequest> requests;
  requests.reserve(calls.size());
  for (GroupCall& call : calls) requests.push_back(group->Append(std::move(call))->Request());
  {
    absl::MutexLock lock(&group->mutex_);
    group->self_ = group;
  }
  absl::Status submitted = link.Submit(requests, deadline, group->block_);
  if (!submitted.ok()) {
    absl::MutexLock lock(&group->mutex_);
    group->self_.reset();
    return submitted;
  }
  return group;
}

CallGroup::Call* CallGroup::Append(GroupCall call) {
  absl::MutexLock lock(&mutex_);
  if (ended_) return nullptr;
  ++open_calls_;
  calls_.push_back(std::make_unique<Call>(*this, std::move(call)));
  return calls_.back().get();
}

bool CallGroup::Add(GroupCall call) {
  if (call.retry) link_.metrics().CountSruRetry();
  Call* const added = Append(std::move(call));
  if (added == nullptr) return false;
  absl::Status status = added->AddTo(block_);
  // Its block has been cancelled meanwhile, or has ended.
  if (!status.ok()) added->EndUnsent(std::move(status));
  return true;
}

void CallGroup::Cancel() {
  link_.Cancel(block_);
}

void CallGroup::CancelCall(size_t tag) {
  std::vector<Call*> calls;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& call : calls_) {
      if (call->spec_tag() == tag) calls.push_back(call.get());
    }
  }
  for (Call* call : calls) call->CancelIfSent();
}

void CallGroup::OnCallEnded() {
  std::shared_ptr<CallGroup> last_reference;
  {
    absl::MutexLock lock(&mutex_);
    if (--open_calls_ > 0) return;
    ended_ = true;
    last_reference = std::move(self_);
  }
  handlers_.on_end();
}

}  // namespace sluice
