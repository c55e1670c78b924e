#include "lib/proxy/proxy_call_logic.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

using Kind = ProxyCallLogic::Action::Kind;

// The code that resets the worker's stream. Forward the code of a client's reset only if it is about the call: the
// other codes are about the client's own connection, and would blame the worker.
Http2Error ResetErrorOf(StreamEnd end) {
  const bool of_the_call = end.error == Http2Error::kInternalError || end.error == Http2Error::kEnhanceYourCalm;
  return end.kind == StreamEnd::Kind::kReset && of_the_call ? end.error : Http2Error::kCancel;
}

}  // namespace

void ProxyCallLogic::OnRequestHeaders(bool end_stream, const absl::Status& parsed, Actions& actions) {
  const bool trailers = request_ != Request::kHead;
  request_ = end_stream ? Request::kWhole : Request::kBody;
  if (!wants_response()) return;
  if (trailers) return Fail(absl::InvalidArgumentError("a request of gRPC has no trailers"), actions);
  if (parsed.ok()) {
    actions.push_back({.kind = Kind::kRoute});
    return;
  }
  actions.push_back({.kind = Kind::kRefuse, .status = parsed});
  EndResponse(parsed.code(), actions);
}

void ProxyCallLogic::OnRequestData(bool end_stream, bool sendable, size_t kept_bytes, Actions& actions) {
  if (end_stream) request_ = Request::kWhole;
  if (!wants_response() || !sendable) return;  // until the stream is open, the client gets no further grant
  if (kept_bytes > kMaxKeptBytes) ForgetRequest(actions);
  actions.push_back({.kind = Kind::kSend});
}

void ProxyCallLogic::OnClosed(StreamEnd end, const absl::Status& why, Actions& actions) {
  if (wants_response()) code_ = why.code();
  response_ = Response::kGone;
  ForgetRequest(actions);
  CancelWorker(why, ResetErrorOf(end), actions);
}

void ProxyCallLogic::OnTarget(const absl::Status& target, Actions& actions) {
  if (!target.ok()) return Fail(target, actions);
  if (!wants_response()) return;
  has_stream_ = true;
  actions.push_back({.kind = Kind::kStart});
}

void ProxyCallLogic::OnNotStarted(const absl::Status& why, Actions& actions) {
  has_stream_ = false;
  Fail(why, actions);
}

// A whole request is sent when the stream opens.
void ProxyCallLogic::OnRequestWritable(Actions& actions) {
  if (has_stream_ && request_ != Request::kWhole) actions.push_back({.kind = Kind::kSend});
}

// Grant the client more only after its bytes have left: this bounds the held part of a request by the client's window.
void ProxyCallLogic::OnSent(const absl::StatusOr<size_t>& waiting_bytes, Actions& actions) {
  if (!waiting_bytes.ok()) return Fail(waiting_bytes.status(), actions);
  if (*waiting_bytes == 0) actions.push_back({.kind = Kind::kGrantRequest});
}

void ProxyCallLogic::OnResponseHeaders(bool end_stream, std::optional<absl::StatusCode> code, Actions& actions) {
  if (!wants_response()) return;
  ForgetRequest(actions);
  response_ = Response::kBegun;
  if (!end_stream) return;
  method_exists_ = code.has_value() && code != absl::StatusCode::kUnimplemented;
  EndResponse(code.value_or(absl::StatusCode::kUnknown), actions);
}

void ProxyCallLogic::OnResponseEnd(Actions& actions) {
  if (wants_response()) EndResponse(absl::StatusCode::kUnknown, actions);
}

// No worker has processed a request that is kept.
void ProxyCallLogic::OnUnreached(const absl::Status& why, bool other, Actions& actions) {
  has_stream_ = false;
  if (!other || !may_start_again()) return Fail(why, actions);
  has_stream_ = true;
  actions.push_back({.kind = Kind::kStart});
}

bool ProxyCallLogic::OnStreamOver(const StreamEnd* end, const absl::Status& why, Actions& actions) {
  has_stream_ = false;
  const bool ok = end != nullptr && why.ok() && code_ == absl::StatusCode::kOk;
  if (!wants_response()) return ok;
  if (!why.ok() || end == nullptr) {
    Fail(why, actions);
  } else if (end->kind == StreamEnd::Kind::kReset || end->kind == StreamEnd::Kind::kUnhandled) {
    // The client can act on the code: for example, it may send the call again.
    EndResponse(absl::StatusCode::kUnavailable, actions);
    actions.push_back({.kind = Kind::kResetClient, .error = end->error});
  } else {
    Fail(absl::UnavailableError(
             absl::StrCat("the connection to the worker was lost", end->why.empty() ? "" : ": ", end->why)),
         actions);
  }
  return ok;
}

void ProxyCallLogic::Fail(const absl::Status& why, Actions& actions) {
  if (!wants_response()) return;
  actions.push_back({.kind = Kind::kRespond, .status = why, .begun = response_ == Response::kBegun});
  EndResponse(why.code(), actions);
  CancelWorker(why, Http2Error::kCancel, actions);
}

void ProxyCallLogic::FailStuck(const absl::Status& why, Actions& actions) {
  if (response_ == Response::kGone) return;
  Fail(why, actions);
  actions.push_back({.kind = Kind::kResetClient, .error = Http2Error::kEnhanceYourCalm});
}

void ProxyCallLogic::ForgetRequest(Actions& actions) {
  if (std::exchange(keeps_request_, false)) actions.push_back({.kind = Kind::kForgetRequest});
}

void ProxyCallLogic::EndResponse(absl::StatusCode code, Actions& actions) {
  code_ = code;
  response_ = Response::kEnded;
  ForgetRequest(actions);
  if (request_ != Request::kWhole) actions.push_back({.kind = Kind::kStopRequest});
}

void ProxyCallLogic::CancelWorker(const absl::Status& why, Http2Error error, Actions& actions) {
  if (std::exchange(has_stream_, false)) {
    actions.push_back({.kind = Kind::kCancelWorker, .status = why, .error = error});
  }
}

}  // namespace sluice
