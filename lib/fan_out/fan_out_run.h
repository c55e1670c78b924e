#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/steady_timer.hpp>
#include <grpcpp/support/byte_buffer.h>

#include "sluice/fan_out.h"

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "lib/fan_out/fan_out_core.h"
#include "lib/fan_out/fan_out_tally.h"
#include "lib/rpc/call_group.h"

namespace sluice {

// One fan-out: a group of calls, its tally, and the timer of its hedges. It lives until it has called `done`, whoever
// holds it; whoever holds it longer holds nothing of the FanOut. Thread-safe.
class FanOutRun final : public FanOutCall, public std::enable_shared_from_this<FanOutRun> {
 public:
  // A request, and the workers that can answer it, the first one first.
  struct WorkerAsk {
    grpc::ByteBuffer request;
    std::optional<int64_t> response_bytes;
    std::vector<size_t> workers;
  };
  struct Spec {
    std::string method;
    bool server_streaming = false;
    std::vector<WorkerAsk> asks;
    std::function<absl::Status(size_t worker, grpc::ByteBuffer& response)> merge;
    FanOutOptions options;
    FanOut::Done done;
  };

  // InvalidArgument that names the field, the value and the bound.
  static absl::Status Validate(const Spec& spec, const WorkerChannels& channels);

  // A valid one. Calls `done` at once when it cannot start.
  static std::shared_ptr<FanOutRun> Start(FanOutCore& core, Spec spec);

  void Cancel() override;

 private:
  struct AttemptState {
    TimePoint sent;
    absl::Status refused;  // by merge
    int64_t response_bytes = 0;
  };
  // What follows from the end of an attempt, to be done without a lock.
  struct Consequence {
    std::optional<GroupCall> retry;
    bool enough = false;
  };
  struct HedgeTime {
    TimePoint due;
    size_t attempt = 0;
  };

  FanOutRun(FanOutCore& core, Spec spec);
  void Start();
  GroupCall CallFor(size_t attempt) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<GroupCall> NextCall(size_t ask, bool hedge) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void OnSent(size_t attempt);
  void OnReady(size_t attempt);
  void OnMessage(CallGroup& group, size_t attempt, grpc::ByteBuffer& message);
  absl::Status OnAnswer(CallGroup& group, size_t attempt, absl::StatusOr<grpc::ByteBuffer> answer);
  void OnEnd();

  absl::Status Deliver(CallGroup& group, size_t attempt, grpc::ByteBuffer& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(merging_);
  Consequence Settle(size_t attempt, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  void SettleAnswer(size_t attempt) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<GroupCall> SettleFailure(size_t attempt, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Decide() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ObserveLatency(size_t attempt) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Describe(const WorkerFailure& failure) const;

  void ArmHedgeTimer(TimePoint due);
  std::shared_ptr<boost::asio::steady_timer> HedgeTimer();
  void OnHedgeTimer();

  FanOutCore& core_;
  Spec spec_;  // merge and done until the end only; the rest does not change
  const TimePoint started_;
  const TimePoint deadline_;
  const std::shared_ptr<MethodHistory> history_;
  const std::optional<absl::Duration> hedge_after_;

  absl::Mutex merging_ ABSL_ACQUIRED_BEFORE(mutex_);  // one merge at a time
  absl::Mutex mutex_;
  FanOutTally tally_ ABSL_GUARDED_BY(mutex_);
  std::vector<AttemptState> attempts_ ABSL_GUARDED_BY(mutex_);
  std::vector<WorkerFailure> failure_by_ask_ ABSL_GUARDED_BY(mutex_);  // the last one, other than our cancellations
  FanOutResult result_ ABSL_GUARDED_BY(mutex_);
  bool decided_ ABSL_GUARDED_BY(mutex_) = false;  // how it ends; what is still under way does not matter
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<CallGroup> group_ ABSL_GUARDED_BY(mutex_);   // from Start to its end; the two hold each other
  std::deque<HedgeTime> hedge_times_ ABSL_GUARDED_BY(mutex_);  // by time
  // Used on the io thread only. Null: no hedges, or the end has come; it must not outlive the link, and this may.
  std::shared_ptr<boost::asio::steady_timer> hedge_timer_ ABSL_GUARDED_BY(mutex_);
  bool hedge_timer_armed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice
