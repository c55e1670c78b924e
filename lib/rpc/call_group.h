#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/support/byte_buffer.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "lib/rpc/link_driver.h"
#include "lib/rpc/worker_channels.h"

namespace sluice {

// What HTTP/2 and gRPC put around a response: frame headers, response headers and trailers. The first response of a
// connection carries its headers in full, about 200 bytes; later ones refer to them.
inline constexpr int64_t kRpcOverheadBytes = 128;

// One call of a group, as raw bytes.
struct GroupCall {
  const WorkerChannels* channels = nullptr;  // outlive the group
  size_t worker = 0;
  std::string method;  // "/package.Service/Method"
  bool server_streaming = false;
  grpc::ByteBuffer request;
  int64_t response_bytes = 0;  // of the answer's message, of all of a stream, as expected
  bool estimated = false;      // nobody said so; its worker may know better
  // Sent with the request; outlives the group.
  const std::vector<std::pair<std::string, std::string>>* metadata = nullptr;
  absl::Duration timeout;  // from sending to the answer
  size_t tag = 0;          // comes back with the answer
  bool retry = false;      // takes the place of one that failed
};

// Calls to many workers that go through the schedule of one link as one block. It lives until its last call has ended,
// whoever holds it. Thread-safe.
class CallGroup : public std::enable_shared_from_this<CallGroup> {
 public:
  // They may call Add and Cancel, and run on any thread, at the same time as others.
  struct Handlers {
    // Once for each call: its message, an empty one where a stream has ended, or why there is none. It returns its
    // verdict: OK, or why the answer is worth nothing.
    std::function<absl::Status(CallGroup&, size_t tag, absl::StatusOr<grpc::ByteBuffer> answer)> on_answer;
    // Once, after the last on_answer has returned.
    std::function<void()> on_end;

    // Streams only, and then needed: each message, one at a time for a call.
    std::function<void(CallGroup&, size_t tag, grpc::ByteBuffer& message)> on_message;
    // Optional. The request leaves; with grants, the answer is ready at its worker.
    std::function<void(size_t tag)> on_sent;
    std::function<void(size_t tag)> on_ready;
  };

  // The errors of LinkSchedule::Submit; then no handler runs.
  static absl::StatusOr<std::shared_ptr<CallGroup>> Start(LinkDriver& link, std::vector<GroupCall> calls,
                                                          TimePoint deadline, Handlers handlers);
  ~CallGroup();

  // One more call, a retry or a hedge, at the block's place in the queue. False when the group has ended, which it
  // cannot within on_answer. Where its block lets nothing in any more, the call's on_answer says so.
  bool Add(GroupCall call);

  // Ends what waits and cancels what is in flight; each call still gets its on_answer.
  void Cancel();
  // The same for the calls of this tag that were sent or added; one of the group's first calls that waits is left
  // alone.
  void CancelCall(size_t tag);

 private:
  class Call;

  CallGroup(LinkDriver& link, TimePoint deadline, Handlers handlers);
  Call* Append(GroupCall call);
  void OnCallEnded();

  LinkDriver& link_;
  const TimePoint deadline_;
  const Handlers handlers_;
  BlockId block_ = 0;  // set by Submit before the first call is sent

  absl::Mutex mutex_;
  std::deque<std::unique_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);
  size_t open_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<CallGroup> self_ ABSL_GUARDED_BY(mutex_);  // until the last call has ended
};

}  // namespace sluice
