#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/http2/session.h"

namespace sluice {

// Decides what happens to one proxied call: it takes the events of the client, of the worker and of the limits, and
// appends actions. ProxiedCall reports the events and applies the actions in their order. No bytes pass through it. It
// has no clock, socket or lock. There is one for each call. Not thread-safe.
//
//   Request   kHead -> kBody -> kWhole                what has arrived from the client
//   Response  kAwaited -> kBegun -> kEnded -> kGone   what the client has; kGone: its stream is closed
//
// The call has a stream to a worker from kStart until OnNotStarted, OnStreamOver or kCancelWorker. The request is kept
// until kForgetRequest. While it is kept, no worker has begun a response, so the call may start at another worker.
class ProxyCallLogic {
 public:
  enum class Request { kHead, kBody, kWhole };
  enum class Response { kAwaited, kBegun, kEnded, kGone };

  struct Action {
    enum class Kind {
      kRoute,          // Find the target of the request. OnTarget follows.
      kStart,          // Pick a worker, and submit a stream to it. If that fails, OnNotStarted follows.
      kSend,           // Send the bytes of this event to the worker. OnSent follows.
      kGrantRequest,   // Let the client send more: as many bytes as it has sent since the last grant.
      kForgetRequest,  // Free the kept request. It is not sent again.
      kRefuse,         // Respond with the HTTP status for `status`.
      kRespond,        // End the response with `status`: in trailers if the response has `begun`, otherwise alone.
      kStopRequest,    // When the response has left, ask the client to stop its request (RFC 9113, section 8.1).
      kResetClient,    // Reset the client's stream with `error`.
      kCancelWorker,   // Cancel the stream to the worker with `status`, and reset it with `error`.
    };
    Kind kind;
    absl::Status status = absl::OkStatus();
    Http2Error error = Http2Error::kCancel;
    bool begun = false;
  };
  using Actions = absl::InlinedVector<Action, 4>;

  // A larger request is not kept once a part of it was sent. The client must send it again by itself.
  static constexpr size_t kMaxKeptBytes = 64u << 10;

  // The client's side. `parsed`: whether the headers are a gRPC request.
  void OnRequestHeaders(bool end_stream, const absl::Status& parsed, Actions& actions);
  // `sendable`: the stream to the worker is open. `kept_bytes`: of the request, these included.
  void OnRequestData(bool end_stream, bool sendable, size_t kept_bytes, Actions& actions);
  // `why`: the status of the call if it has none.
  void OnClosed(StreamEnd end, const absl::Status& why, Actions& actions);

  // The target is known and has workers, or why the call cannot have one.
  void OnTarget(const absl::Status& target, Actions& actions);
  void OnNotStarted(const absl::Status& why, Actions& actions);

  // The worker's side. The stream can take more of the request.
  void OnRequestWritable(Actions& actions);
  // Bytes of kSend that wait for the worker's window or socket.
  void OnSent(const absl::StatusOr<size_t>& waiting_bytes, Actions& actions);
  // Headers or trailers of the response, while wants_response: ProxiedCall forwards them. `code`: in the trailers.
  void OnResponseHeaders(bool end_stream, std::optional<absl::StatusCode> code, Actions& actions);
  // DATA with END_STREAM: the response has no trailers.
  void OnResponseEnd(Actions& actions);
  // The worker could not be reached. `other`: another worker may be.
  void OnUnreached(const absl::Status& why, bool other, Actions& actions);
  // `end`: how the stream closed; null if it never opened. Returns whether the worker has responded with OK.
  bool OnStreamOver(const StreamEnd* end, const absl::Status& why, Actions& actions);

  // The limits. Ends the call with a status that the client receives.
  void Fail(const absl::Status& why, Actions& actions);
  // As Fail, for a client that does not read; also resets its stream, even if the response is complete.
  void FailStuck(const absl::Status& why, Actions& actions);
  void ForgetRequest(Actions& actions);

  Request request() const { return request_; }
  Response response() const { return response_; }
  bool wants_response() const { return response_ == Response::kAwaited || response_ == Response::kBegun; }
  bool keeps_request() const { return keeps_request_; }
  bool has_stream() const { return has_stream_; }
  // Whether the call may start again at another worker.
  bool may_start_again() const { return wants_response() && keeps_request_; }
  // The status of the call, once it has one.
  std::optional<absl::StatusCode> code() const { return code_; }
  // The worker has sent a status other than UNIMPLEMENTED.
  bool method_exists() const { return method_exists_; }

 private:
  void EndResponse(absl::StatusCode code, Actions& actions);
  void CancelWorker(const absl::Status& why, Http2Error error, Actions& actions);

  Request request_ = Request::kHead;
  Response response_ = Response::kAwaited;
  bool has_stream_ = false;
  bool keeps_request_ = true;
  bool method_exists_ = false;
  std::optional<absl::StatusCode> code_;
};

}  // namespace sluice
