#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/completion_queue.h>

#include "sluice/fan_out.h"

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "answers.grpc.pb.h"
#include "tests/testbed/answer_workload.h"

namespace sluice::testbed {

// Sends one request to every worker: one block of one reader. One for each reader. Not thread-safe.
class BlockCaller {
 public:
  virtual ~BlockCaller() = default;
  // Waits until all responses have arrived, one call has failed, or the timeout expires. `requests` has one entry for
  // each worker that is asked.
  virtual absl::Status Call(const std::vector<v1::AnswerRequest>& requests, absl::Duration timeout,
                            BlockRecord& record) = 0;
};

struct FanOutCallerOptions {
  FanOutOptions call;                                 // its timeout is replaced by the timeout of each call
  std::optional<BlockRecord::Clock::time_point> cut;  // cancels what has not ended by then
  bool sizes_known = true;
  size_t replicas = 0;  // the replicas of worker i are i + 1, i + 2 …
  // Called for each message before it counts, on the thread that merges. An error rejects the message. May be null.
  std::function<absl::Status()> on_message;
};

// Makes the calls through Sluice, to the first workers of `fan_out`, one for each request. All readers share `fan_out`,
// which must outlive them.
std::unique_ptr<BlockCaller> MakeFanOutCaller(FanOut& fan_out, const FanOutCallerOptions& options);

// A hand-written semaphore for calls in flight: first in, first out, shared by all readers. One for each load.
// Thread-safe.
class CallCap {
 public:
  explicit CallCap(size_t calls) : free_(calls) {}

  // Runs `start` now, or later on the thread that ends another call.
  void Start(std::function<void()> start);
  void End();

 private:
  absl::Mutex mutex_;
  size_t free_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
};

// Makes the same calls by hand, with generated stubs, a completion queue for each reader, and `cap`. All readers share
// `stubs` and `cap`, which must outlive them. Cancels what has not ended by the time `cut`.
using Stubs = std::vector<std::unique_ptr<v1::Answers::Stub>>;
Stubs ConnectByHand(const std::vector<std::string>& workers);
std::unique_ptr<BlockCaller> MakeHandWrittenCaller(const Stubs& stubs, CallCap& cap,
                                                   std::optional<BlockRecord::Clock::time_point> cut = std::nullopt);

}  // namespace sluice::testbed
