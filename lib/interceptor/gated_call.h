#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include <grpcpp/client_context.h>
#include <grpcpp/support/interceptor.h>
#include <grpcpp/support/status.h>

#include "sluice/link.h"
#include "sluice/link_schedule.h"

#include "absl/status/status.h"
#include "lib/link/scheduled.h"

namespace sluice {

// A call of somebody else's making that is held before its start until the schedule lets it go: a block of one. One for
// each call that is gated, shared by its interceptor and, while the schedule knows it, itself. Start is called once at
// most, Cancel and End in any order and as often as they come, from any thread; all else happens on the link's thread.
//
// Whoever calls it from another thread keeps the link alive until the call returns: the RPC, and with it the channel,
// may end before.
class GatedCall final : public Scheduled, public std::enable_shared_from_this<GatedCall> {
 public:
  explicit GatedCall(Link& link) : link_(link) {}

  // Holds the operations that start the RPC, and calls Proceed for them once, later. What the schedule refuses proceeds
  // with a cancelled RPC. The context is not used any more when it returns.
  void Start(grpc::experimental::InterceptorBatchMethods& operations, grpc::ClientContext& context,
             int64_t response_bytes);
  // Lets them proceed with a cancelled RPC, which ends with this status; for a call that cannot have a place in the
  // schedule. In place of Start.
  static void Refuse(grpc::experimental::InterceptorBatchMethods& operations, grpc::ClientContext& context,
                     const absl::Status& reason);

  // The RPC is being cancelled. If it waits, it ends now.
  void Cancel();
  // The RPC has ended. Gives back what it held. Only the first counts.
  void End(grpc::StatusCode code);

 private:
  // Of the call in the schedule.
  enum class State { kUnknown, kWaiting, kSent, kEnded };

  // Scheduled.
  void Send(CallId id, int64_t granted_bytes) override;
  void Grant(int64_t) override {}  // gRPC's windows are open
  void EndUnsent(absl::Status why) override;
  void Abort() override {}  // it is gRPC that was cancelled, so its end follows

  void Post(void (GatedCall::*task)());
  void Submit();
  void DropIfWaiting();
  void OnRpcEnded();
  void RefuseHeld(const absl::Status& why);

  Link& link_;
  std::atomic<bool> ended_ = false;  // End was called

  // Set before what is posted to the link's thread.
  grpc::experimental::InterceptorBatchMethods* operations_ = nullptr;  // until Proceed
  grpc_call* rpc_ = nullptr;                                           // kept by operations_
  int64_t response_bytes_ = 0;
  TimePoint deadline_;
  TimePoint submitted_;
  grpc::StatusCode code_ = grpc::StatusCode::UNKNOWN;

  // For the link's thread only.
  LinkCore* core_ = nullptr;
  State state_ = State::kUnknown;
  bool unwanted_ = false;
  BlockId block_ = 0;
  CallId id_;
  TimePoint sent_at_;
  std::shared_ptr<GatedCall> self_;  // while the schedule knows it
};

}  // namespace sluice
