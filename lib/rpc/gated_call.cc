#include "lib/rpc/gated_call.h"

#include <chrono>
#include <string>
#include <utility>

#include <grpc/grpc.h>
#include <grpc/support/time.h>

#include "absl/time/time.h"
#include "lib/rpc/call_group.h"
#include "lib/rpc/clock.h"
#include "lib/rpc/rpc_ending.h"
#include "lib/telemetry/aggregator_metrics.h"

namespace sluice {
namespace {

// Of the context, on the clock of the schedule.
TimePoint DeadlineOf(const grpc::ClientContext& context) {
  constexpr int64_t kForeverSeconds = int64_t{10} * 365 * 24 * 3600;
  const gpr_timespec deadline = context.raw_deadline();
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  if (left.tv_sec > kForeverSeconds) return TimePoint::max();
  if (left.tv_sec < 0) return TimePoint::min();
  return Now() + std::chrono::seconds(left.tv_sec) + std::chrono::nanoseconds(left.tv_nsec);
}

// With a status of our own. Not ClientContext::TryCancel: it would tell the interceptors, and this one may have just
// been told, under the same lock.
void CancelRpc(grpc_call* rpc, const absl::Status& reason) {
  const std::string message(reason.message());
  grpc_call_cancel_with_status(rpc, static_cast<grpc_status_code>(reason.code()), message.c_str(), nullptr);
}

}  // namespace

void GatedCall::Start(grpc::experimental::InterceptorBatchMethods& operations, grpc::ClientContext& context,
                      int64_t response_bytes) {
  operations_ = &operations;
  rpc_ = context.c_call();
  submitted_ = Now();
  const TimePoint deadline = DeadlineOf(context);
  const std::shared_ptr<GatedCall> self = self_ = shared_from_this();
  const CallRequest request{.response_bytes = response_bytes + kRpcOverheadBytes, .tag = tag()};
  BlockId block = kNoBlock;
  if (absl::Status refused = driver_.Submit({&request, 1}, deadline, block); !refused.ok()) {
    self_.reset();
    return Refuse(operations, context, refused);
  }
  block_ = block;
  if (unwanted_) driver_.Cancel(block);
}

void GatedCall::Refuse(grpc::experimental::InterceptorBatchMethods& operations, grpc::ClientContext& context,
                       const absl::Status& reason) {
  CancelRpc(context.c_call(), reason);
  operations.Proceed();
}

// The schedule ignores a block that has ended already, and takes note of one whose call is out.
void GatedCall::Cancel() {
  unwanted_ = true;
  if (const BlockId block = block_; block != kNoBlock) driver_.Cancel(block);
}

// It may come while the RPC is held: where the status is asked for apart from the start, gRPC's own deadline ends it.
void GatedCall::End(grpc::StatusCode code) {
  if (ended_) return;
  code_ = code;
  ended_ = true;
  if (sent_) {
    Finish();
  } else {
    Cancel();
  }
}

// After Proceed the RPC may end, and this with it, at any moment.
void GatedCall::Send(CallId id, bool /*held*/) {
  grpc::experimental::InterceptorBatchMethods* const operations = operations_;
  id_ = id;
  sent_at_ = Now();
  driver_.metrics().ObserveQueueWait(absl::FromChrono(sent_at_ - submitted_));
  sent_ = true;
  if (ended_) Finish();
  operations->Proceed();
}

// The status first: what proceeds finds the RPC cancelled, and nothing is sent.
void GatedCall::EndUnsent(absl::Status reason) {
  const std::shared_ptr<GatedCall> self = std::move(self_);
  const bool expired = absl::IsDeadlineExceeded(reason);
  driver_.metrics().CountSruRequest(expired ? SruOutcome::kExpired : SruOutcome::kCancelled);
  if (expired) driver_.metrics().CountTimeout(TimeoutKind::kQueueDeadline);
  CancelRpc(rpc_, reason);
  operations_->Proceed();
}

void GatedCall::Finish() {
  if (finished_.exchange(true)) return;
  const std::shared_ptr<GatedCall> self = std::move(self_);
  AggregatorMetrics& metrics = driver_.metrics();
  metrics.ObserveSruTransfer(absl::FromChrono(Now() - sent_at_));
  const SruOutcome outcome = OutcomeOf(code_);
  metrics.CountSruRequest(outcome);
  if (outcome == SruOutcome::kRpcDeadline) metrics.CountTimeout(TimeoutKind::kRpcDeadline);
  driver_.Finish(id_, HowEnded(code_));
}

}  // namespace sluice
