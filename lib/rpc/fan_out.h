#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "lib/rpc/link_driver.h"

namespace sluice {

// What HTTP/2 and gRPC put around a response: frame headers, response headers and trailers. The first response of a
// connection carries its headers in full, about 200 bytes; later ones refer to them.
inline constexpr int64_t kRpcOverheadBytes = 128;

// One unary call of a fan-out, as raw bytes.
struct FanOutCall {
  grpc::GenericStub* stub = nullptr;  // outlives the fan-out
  std::string method;                 // "/package.Service/Method"
  grpc::ByteBuffer request;
  int64_t response_bytes = 0;  // of the answer's message, as expected
  absl::Duration timeout;      // from sending to the answer
  size_t tag = 0;              // comes back with the answer
};

// Calls to many workers that go through the schedule of one link as one block. It lives until its last call has ended,
// whoever holds it. Thread-safe.
class FanOut : public std::enable_shared_from_this<FanOut> {
 public:
  struct Handlers {
    // Once for each call. It may call Add and Cancel, and runs on any thread, at the same time as others. It returns
    // its verdict: OK, or why the answer is worth nothing.
    std::function<absl::Status(FanOut&, size_t tag, absl::StatusOr<grpc::ByteBuffer> answer)> on_answer;
    // Once, after the last on_answer has returned.
    std::function<void()> on_end;
  };

  // The errors of LinkSchedule::Submit; then no handler runs.
  static absl::StatusOr<std::shared_ptr<FanOut>> Start(LinkDriver& link, std::vector<FanOutCall> calls,
                                                       TimePoint deadline, Handlers handlers);
  ~FanOut();

  // One more call, a retry, at the block's place in the queue. Only from within on_answer.
  void Add(FanOutCall call);

  // Ends what waits and cancels what is in flight; each call still gets its on_answer.
  void Cancel();

 private:
  class Call;

  FanOut(LinkDriver& link, TimePoint deadline, Handlers handlers);
  Call& Append(FanOutCall call);
  void OnCallEnded();

  LinkDriver& link_;
  const TimePoint deadline_;
  const Handlers handlers_;
  BlockId block_ = 0;  // set by Submit before the first call is sent

  absl::Mutex mutex_;
  std::deque<std::unique_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);
  size_t open_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<FanOut> self_ ABSL_GUARDED_BY(mutex_);  // until the last call has ended
};

}  // namespace sluice
