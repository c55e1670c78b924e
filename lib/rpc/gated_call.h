#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>

#include <grpcpp/client_context.h>
#include <grpcpp/support/interceptor.h>
#include <grpcpp/support/status.h>

#include "sluice/link_schedule.h"

#include "absl/status/status.h"
#include "lib/rpc/link_driver.h"

namespace sluice {

// A call of somebody else's making that is held before its start until the schedule lets it go: a block of one. One for
// each call that is gated, shared by its interceptor and, while the schedule knows it, itself. Thread-safe: Start is
// called once at most, Cancel and End in any order and as often as they come, from any thread.
//
// Whoever calls it from a thread that is not the driver's keeps the driver alive until the call returns: the RPC, and
// with it the channel, may end before.
class GatedCall final : public ScheduledCall, public std::enable_shared_from_this<GatedCall> {
 public:
  explicit GatedCall(LinkDriver& driver) : driver_(driver) {}

  // Holds the operations that start the RPC, and calls Proceed for them once, now or later. What the schedule refuses
  // proceeds with a cancelled RPC. The context is not used any more when it returns.
  void Start(grpc::experimental::InterceptorBatchMethods& operations, grpc::ClientContext& context,
             int64_t response_bytes);
  // Lets them proceed with a cancelled RPC, which ends with this status; for a call that cannot have a place in the
  // schedule. In place of Start.
  static void Refuse(grpc::experimental::InterceptorBatchMethods& operations, grpc::ClientContext& context,
                     const absl::Status& reason);

  // The RPC is being cancelled. If it waits, it ends now.
  void Cancel();
  // The RPC has ended. Gives back what it held, once. Not from two threads at a time.
  void End(grpc::StatusCode code);

  void Send(CallId id, bool held) override;
  void Grant() override {}  // not without grants
  void EndUnsent(absl::Status reason) override;
  void Abort() override {}  // it is gRPC that was cancelled
  std::shared_ptr<void> Hold() override { return shared_from_this(); }

 private:
  static constexpr BlockId kNoBlock = std::numeric_limits<BlockId>::max();

  void Finish();

  LinkDriver& driver_;
  grpc::experimental::InterceptorBatchMethods* operations_ = nullptr;  // until Proceed
  grpc_call* rpc_ = nullptr;                                           // kept by operations_
  TimePoint submitted_;
  TimePoint sent_at_;
  CallId id_;
  std::shared_ptr<GatedCall> self_;  // while the schedule knows it

  // Each pair is written in one order and read in the other by two threads: whichever comes second sees both.
  std::atomic<BlockId> block_ = kNoBlock;
  std::atomic<bool> unwanted_ = false;  // with block_
  std::atomic<bool> sent_ = false;
  std::atomic<bool> ended_ = false;  // with sent_
  std::atomic<bool> finished_ = false;
  grpc::StatusCode code_ = grpc::StatusCode::UNKNOWN;
};

}  // namespace sluice
