#include "lib/interceptor/gated_call.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include <grpc/grpc.h>
#include <grpc/support/time.h>

#include "sluice/plan.h"

#include "absl/time/time.h"
#include "lib/link/clock.h"
#include "lib/link/link_core.h"
#include "lib/telemetry/aggregator_metrics.h"

namespace sluice {
namespace {

// What HTTP/2 and gRPC put around an answer: frame headers, headers and trailers.
constexpr int64_t kRpcOverheadBytes = 128;

// Of the context, on the clock of the schedule.
TimePoint DeadlineOf(const grpc::ClientContext& context, TimePoint now) {
  constexpr int64_t kForeverSeconds = int64_t{10} * 365 * 24 * 3600;
  const gpr_timespec deadline = context.raw_deadline();
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  if (left.tv_sec > kForeverSeconds) return TimePoint::max();
  if (left.tv_sec < 0) return TimePoint::min();
  return now + std::chrono::seconds(left.tv_sec) + std::chrono::nanoseconds(left.tv_nsec);
}

// With a status of our own. Not ClientContext::TryCancel: it would tell the interceptors, and this one may have just
// been told, under the same lock.
void CancelRpc(grpc_call* rpc, const absl::Status& reason) {
  const std::string message(reason.message());
  grpc_call_cancel_with_status(rpc, static_cast<grpc_status_code>(reason.code()), message.c_str(), nullptr);
}

// Whether the answer may still be on its way although the RPC has ended.
CallEnd EndOf(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::UNAVAILABLE:
      return CallEnd::kAborted;
    default:
      return CallEnd::kArrived;
  }
}

SruOutcome OutcomeOf(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::OK:
      return SruOutcome::kOk;
    case grpc::StatusCode::CANCELLED:
      return SruOutcome::kCancelled;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return SruOutcome::kRpcDeadline;
    default:
      return SruOutcome::kRpcError;
  }
}

}  // namespace

void GatedCall::Start(grpc::experimental::InterceptorBatchMethods& operations, grpc::ClientContext& context,
                      int64_t response_bytes) {
  operations_ = &operations;
  rpc_ = context.c_call();
  response_bytes_ = std::min(response_bytes + kRpcOverheadBytes, kMaxResponseBytes);
  submitted_ = Now();
  deadline_ = DeadlineOf(context, submitted_);
  Post(&GatedCall::Submit);
}

void GatedCall::Refuse(grpc::experimental::InterceptorBatchMethods& operations, grpc::ClientContext& context,
                       const absl::Status& reason) {
  CancelRpc(context.c_call(), reason);
  operations.Proceed();
}

void GatedCall::Cancel() {
  Post(&GatedCall::DropIfWaiting);
}

// It may come while the RPC is held: where the status is asked for apart from the start, gRPC's own deadline ends it.
void GatedCall::End(grpc::StatusCode code) {
  if (ended_.exchange(true)) return;
  code_ = code;
  Post(&GatedCall::OnRpcEnded);
}

void GatedCall::Post(void (GatedCall::*task)()) {
  link_.Post([self = shared_from_this(), task](LinkCore& core) {
    self->core_ = &core;
    (*self.*task)();
  });
}

void GatedCall::Submit() {
  if (unwanted_) return RefuseHeld(absl::CancelledError("cancelled before its start; it was not sent"));
  state_ = State::kWaiting;
  self_ = shared_from_this();
  const absl::Status submitted =
      core_->SubmitOther(*this, response_bytes_, deadline_, LinkCore::Place::kQueued, block_);
  if (submitted.ok()) return;
  state_ = State::kEnded;
  self_.reset();
  RefuseHeld(submitted);
}

void GatedCall::DropIfWaiting() {
  unwanted_ = true;
  if (state_ == State::kWaiting) core_->Cancel(block_);
}

// After Proceed the RPC may end at any moment. What the schedule lets come in parts it is charged for part by part; as
// gRPC does not tell what has come, it is charged for all of them until the end.
void GatedCall::Send(CallId id, int64_t granted_bytes) {
  id_ = id;
  state_ = State::kSent;
  sent_at_ = core_->now();
  core_->metrics().ObserveQueueWait(absl::FromChrono(sent_at_ - submitted_));
  if (granted_bytes < response_bytes_) core_->Ready(id, response_bytes_);
  operations_->Proceed();
}

// The status first: what proceeds finds the RPC cancelled, and nothing is sent.
void GatedCall::EndUnsent(absl::Status why) {
  const std::shared_ptr<GatedCall> self = std::move(self_);
  state_ = State::kEnded;
  const bool expired = absl::IsDeadlineExceeded(why);
  core_->metrics().CountSruRequest(expired ? SruOutcome::kExpired : SruOutcome::kCancelled);
  if (expired) core_->metrics().CountTimeout(TimeoutKind::kQueueDeadline);
  RefuseHeld(why);
}

void GatedCall::RefuseHeld(const absl::Status& why) {
  CancelRpc(rpc_, why);
  operations_->Proceed();
}

void GatedCall::OnRpcEnded() {
  DropIfWaiting();
  if (state_ != State::kSent) return;
  const std::shared_ptr<GatedCall> self = std::move(self_);
  state_ = State::kEnded;
  AggregatorMetrics& metrics = core_->metrics();
  metrics.ObserveSruTransfer(absl::FromChrono(core_->now() - sent_at_));
  const SruOutcome outcome = OutcomeOf(code_);
  metrics.CountSruRequest(outcome);
  if (outcome == SruOutcome::kRpcDeadline) metrics.CountTimeout(TimeoutKind::kRpcDeadline);
  core_->Finish(id_, EndOf(code_));
}

}  // namespace sluice
