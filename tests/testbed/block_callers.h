#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
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

// Asks every worker once: one block of one reader. Not thread-safe.
class BlockCaller {
 public:
  virtual ~BlockCaller() = default;
  // Waits until all answers are here, one has failed, or the time is up. `requests` has one for each worker.
  virtual absl::Status Call(const std::vector<v1::AnswerRequest>& requests, absl::Duration timeout,
                            BlockRecord& record) = 0;
};

struct FanOutCallerOptions {
  FanOutOptions call;  // the timeout is that of each call
  bool sizes_known = true;
  size_t replicas = 0;  // worker i's are i + 1, i + 2 …
  // Called for each message before it counts, on the thread that merges. An error refuses the message. May be null.
  std::function<absl::Status()> on_message;
};

// The same calls through Sluice. `fan_out` is shared by all readers and outlives them.
std::unique_ptr<BlockCaller> MakeFanOutCaller(FanOut& fan_out, const FanOutCallerOptions& options);

// A semaphore for calls in flight, as one writes it by hand: first in, first out, for all readers together. There is
// one for each load. Thread-safe.
class CallCap {
 public:
  explicit CallCap(size_t calls) : free_(calls) {}

  // Runs `start` now, or later on the thread that ends a call.
  void Start(std::function<void()> start);
  void End();

 private:
  absl::Mutex mutex_;
  size_t free_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
};

// The same calls as one writes them by hand: generated stubs, a completion queue for each reader, and `cap`. `stubs`
// and `cap` are shared by all readers, and outlive them.
using Stubs = std::vector<std::unique_ptr<v1::Answers::Stub>>;
Stubs ConnectByHand(const std::vector<std::string>& workers);
std::unique_ptr<BlockCaller> MakeHandWrittenCaller(const Stubs& stubs, CallCap& cap);

}  // namespace sluice::testbed
