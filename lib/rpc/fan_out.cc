#include "lib/rpc/fan_out.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include <grpc/support/time.h>
#include <grpcpp/client_context.h>

#include "lib/rpc/clock.h"
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

// Whether the answer may still be on its way although the call has ended.
CallEnd HowEnded(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::UNAVAILABLE:
      return CallEnd::kAborted;
    default:
      return CallEnd::kArrived;
  }
}

SruOutcome OutcomeOf(const grpc::Status& status, const absl::Status& verdict) {
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return verdict.ok() ? SruOutcome::kOk : SruOutcome::kCorrupt;
    case grpc::StatusCode::CANCELLED:
      return SruOutcome::kCancelled;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return SruOutcome::kRpcDeadline;
    default:
      return SruOutcome::kRpcError;
  }
}

}  // namespace

// One call: scheduled, sent, answered. Owned by its FanOut.
//
// With grants the answer is asked for in two steps. The request leaves with a wait for the answer's headers: they say
// that it is ready, and HTTP/2 flow control holds the rest back at the worker, since nobody has asked for it. Finish
// asks, which opens the window by the size of the message: that is the grant. Without grants both are asked for at
// once.
class FanOut::Call final : public ScheduledCall, public Completion {
 public:
  Call(FanOut& fan_out, FanOutCall spec) : fan_out_(fan_out), spec_(std::move(spec)), submitted_(Now()) {}

  CallRequest Request() {
    return {.response_bytes = spec_.response_bytes + kRpcOverheadBytes, .tag = ScheduledCall::tag()};
  }

  absl::Status AddTo(BlockId block) { return fan_out_.link_.Add(block, Request(), id_); }

  void Send(CallId id) override {
    id_ = id;
    id_ = id;
    sent_ = Now();
    metrics().ObserveQueueWait(absl::FromChrono(sent_ - submitted_));
    const auto timeout = absl::ToChronoNanoseconds(spec_.timeout);
    context_.emplace().set_deadline(After(std::min<TimePoint::duration>(timeout, fan_out_.deadline_ - sent_)));
    rpc_ = spec_.stub->PrepareUnaryCall(&*context_, spec_.method, spec_.request, &fan_out_.link_.completion_queue());
    rpc_->StartCall();
    const bool granted = fan_out_.link_.options().discipline == Discipline::kGrants;
    if (granted) rpc_->ReadInitialMetadata(Completion::tag());
    started_ = true;
    if (aborted_) context_->TryCancel();
    if (granted) {
      Advance();
    } else {
      AskForAnswer();
    }
  }

  void Grant() override { AskForAnswer(); }

  std::shared_ptr<void> Hold() override { return fan_out_.shared_from_this(); }

  void EndUnsent(absl::Status reason) override {
    const bool expired = absl::IsDeadlineExceeded(reason);
    metrics().CountSruRequest(expired ? SruOutcome::kExpired : SruOutcome::kCancelled);
    if (expired) metrics().CountTimeout(TimeoutKind::kQueueDeadline);
    // The verdict is on an answer; there is none.
    fan_out_.handlers_.on_answer(fan_out_, spec_.tag, std::move(reason)).IgnoreError();
    fan_out_.OnCallEnded();
  }

  // It may come before Send, on another thread, and at the same time as OnReady. Whichever comes second, this or their
  // look at `aborted_`, ends the call.
  void Abort() override {
    aborted_ = true;
    if (started_) context_->TryCancel();
    if (ready_) AskForAnswer();
  }

  // The answer is handled before the schedule hears of the end: a retry that it adds keeps the block, and so its place
  // in the queue, alive.
  void OnCompletion(bool ok) override {
    if (!asked_) {
      headers_ok_ = ok;
      return Advance();
    }
    metrics().ObserveSruTransfer(absl::FromChrono(Now() - sent_));
    status_ = MeaningOf(status_, aborted_, Now() >= fan_out_.deadline_);
    absl::StatusOr<grpc::ByteBuffer> answer = std::move(response_);
    if (!status_.ok()) answer = ToAbsl(status_);
    const absl::Status verdict = fan_out_.handlers_.on_answer(fan_out_, spec_.tag, std::move(answer));
    const SruOutcome outcome = OutcomeOf(status_, verdict);
    metrics().CountSruRequest(outcome);
    if (outcome == SruOutcome::kRpcDeadline) metrics().CountTimeout(TimeoutKind::kRpcDeadline);
    fan_out_.link_.Finish(id_, HowEnded(status_));
    fan_out_.OnCallEnded();
  }

 private:
  void AskForAnswer() {
    if (!asked_.exchange(true)) rpc_->Finish(&response_, &status_, Completion::tag());
  }

  // Called when the request has been handed over and when the headers are here. Those may come first, on another
  // thread, while gRPC's reader still notes that it was asked for them; nothing more may be asked of it before it has.
  void Advance() {
    if (steps_.fetch_add(1) == 1) OnReady();
  }

  // Headers that are not ok: the call has ended without an answer, and has nothing to be granted.
  void OnReady() {
    ready_ = true;
    if (!headers_ok_ || aborted_) {
      AskForAnswer();
    } else {
      fan_out_.link_.Ready(id_, std::nullopt);
    }
  }

  AggregatorMetrics& metrics() { return fan_out_.link_.metrics(); }

  FanOut& fan_out_;
  FanOutCall spec_;
  const TimePoint submitted_;
  TimePoint sent_;
  CallId id_;
  std::atomic<bool> started_ = false;
  std::atomic<bool> aborted_ = false;
  std::optional<grpc::ClientContext> context_;  // from Send on: a block may have thousands of calls that wait
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> rpc_;
  grpc::ByteBuffer response_;
  grpc::Status status_;
  std::atomic<int> steps_ = 0;  // grants: sent, and headers
  bool headers_ok_ = false;
  std::atomic<bool> ready_ = false;  // grants: both are done
  std::atomic<bool> asked_ = false;  // for the answer; what completes next is the call
};

FanOut::FanOut(LinkDriver& link, TimePoint deadline, Handlers handlers)
    : link_(link), deadline_(deadline), handlers_(std::move(handlers)) {}

FanOut::~FanOut() = default;

absl::StatusOr<std::shared_ptr<FanOut>> FanOut::Start(LinkDriver& link, std::vector<FanOutCall> calls,
                                                      TimePoint deadline, Handlers handlers) {
  std::shared_ptr<FanOut> fan_out(new FanOut(link, deadline, std::move(handlers)));
  std::vector<CallRequest> requests;
  requests.reserve(calls.size());
  for (FanOutCall& call : calls) requests.push_back(fan_out->Append(std::move(call)).Request());
  {
    absl::MutexLock lock(&fan_out->mutex_);
    fan_out->self_ = fan_out;
  }
  absl::Status submitted = link.Submit(requests, deadline, fan_out->block_);
  if (!submitted.ok()) {
    absl::MutexLock lock(&fan_out->mutex_);
    fan_out->self_.reset();
    return submitted;
  }
  return fan_out;
}

FanOut::Call& FanOut::Append(FanOutCall call) {
  absl::MutexLock lock(&mutex_);
  ++open_calls_;
  calls_.push_back(std::make_unique<Call>(*this, std::move(call)));
  return *calls_.back();
}

void FanOut::Add(FanOutCall call) {
  Call& added = Append(std::move(call));
  link_.metrics().CountSruRetry();
  absl::Status status = added.AddTo(block_);
  // Its block has been cancelled meanwhile.
  if (!status.ok()) added.EndUnsent(std::move(status));
}

void FanOut::Cancel() {
  link_.Cancel(block_);
}

void FanOut::OnCallEnded() {
  std::shared_ptr<FanOut> last_reference;
  {
    absl::MutexLock lock(&mutex_);
    if (--open_calls_ > 0) return;
    last_reference = std::move(self_);
  }
  handlers_.on_end();
}

}  // namespace sluice
