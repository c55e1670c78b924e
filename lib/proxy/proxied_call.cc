#include "lib/proxy/proxied_call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/grpc_wire/request_parser.h"
#include "lib/grpc_wire/response_head.h"
#include "lib/net/clock.h"
#include "lib/net/worker_address.h"
#include "lib/proxy/client_connection.h"
#include "lib/proxy/proxy_loop.h"
#include "lib/tcp/tcp_report.h"

namespace sluice {
namespace {

// The proxy resends a request of up to this size if its worker did not process it. The client must resend a larger one.
constexpr size_t kMaxReplayBytes = 64u << 10;
// When a message arrives packet by packet, forward at least this much at a time: each write wakes the client, and it
// cannot use a part of a message.
constexpr int64_t kMinPartBytes = 16 << 10;

size_t SizeOf(const HeaderList& headers) {
  size_t bytes = 0;
  for (const HeaderField& field : headers) bytes += field.name.size() + field.value.size();
  return bytes;
}

std::optional<absl::StatusCode> StatusIn(const HeaderList& headers) {
  for (const HeaderField& field : headers) {
    int code = 0;
    if (field.name == "grpc-status" && absl::SimpleAtoi(field.value, &code)) {
      return absl::Status(static_cast<absl::StatusCode>(code), "").code();
    }
  }
  return std::nullopt;
}

// The code that resets the worker's stream. Forward the code of a client's reset only if it is about the call: the
// other codes are about the client's own connection, and would blame the worker.
Http2Error ResetErrorOf(StreamEnd end) {
  const bool of_the_call = end.error == Http2Error::kInternalError || end.error == Http2Error::kEnhanceYourCalm;
  return end.kind == StreamEnd::Kind::kReset && of_the_call ? end.error : Http2Error::kCancel;
}

}  // namespace

absl::Status StuckClients(int64_t max_held_bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("the client does not read, and more than ", max_held_bytes, " bytes are held for all clients"));
}

ProxiedCall::ProxiedCall(ProxyLoop& proxy, ClientConnection& client, int32_t stream)
    : proxy_(proxy), client_(&client), stream_(stream), living_(proxy.OnCallBegan()), began_(proxy.link().now()) {}

// --- The request.

void ProxiedCall::OnHeaders(HeaderList headers, bool end_stream) {
  has_head_ = true;
  if (!head_.path.empty()) return Fail(absl::InvalidArgumentError("a request of gRPC has no trailers"));
  request_ended_ = end_stream;
  absl::StatusOr<ForwardedHead> head = ParseForwardedHead(std::move(headers), proxy_.options().worker_header);
  if (!head.ok()) return Refuse(head.status());
  head_ = *std::move(head);
  if (head_.timeout != absl::InfiniteDuration()) deadline_ = DeadlineAfter(began_, head_.timeout);
  if (absl::Status added = AddVia(head_, proxy_.pseudonym()); !added.ok()) return Fail(added);
  CountRequest();
  Route();
  if (end_stream) proxy_.link().FlushEarly();
}

// Ends a request that is not a gRPC call.
void ProxiedCall::Refuse(const absl::Status& why) {
  client_->SendHeaders(*this, ToRefusal(why), /*end_stream=*/true);
  CountAnswer();
  EndAnswer(why.code());
}

void ProxiedCall::Route() {
  const std::string name = client_->TargetOf(head_);
  // A client that reached a worker by CONNECT may call it by a different name, as it could over a direct connection.
  authority_ = client_->keeps_authority() && !head_.authority.empty() ? head_.authority : AuthorityOf(name);
  absl::StatusOr<std::shared_ptr<Target>> target = proxy_.FindTarget(client_->policy(), name);
  if (!target.ok()) return Fail(target.status());
  target_ = *std::move(target);
  if (target_->known()) return Start();
  target_->Wait(*this);
}

void ProxiedCall::Start() {
  if (client_ == nullptr || answered_) return;
  absl::StatusOr<Target::Choice> choice = target_->Pick();
  if (!choice.ok()) return Fail(choice.status());
  StartAt(*choice);
}

void ProxiedCall::StartAt(const Target::Choice& choice) {
  pattern_ = choice.pattern;
  tls_ = choice.worker->tls() != nullptr;
  const ScheduledStream::Options options{
      .worker = choice.worker,
      .response_bytes = head_.response_bytes.value_or(proxy_.ExpectedBytes(head_.path)),
      .many_messages = true,
      .may_idle = proxy_.MayIdle(head_.path),
      .deadline = deadline_};
  // Submit may already call the stream's event handlers.
  const auto make = [&] {
    auto stream = std::make_unique<ScheduledStream>(proxy_.link(), options, shared_from_this());
    if (!replayable_) stream->SetBeginsOnce();
    worker_ = stream.get();
    return stream;
  };
  const absl::Status submitted = proxy_.Submit(make, head_, deadline_);
  if (submitted.ok()) return;
  worker_ = nullptr;
  Fail(submitted);
}

std::optional<StreamUser::Opening> ProxiedCall::BeginRequest(TimePoint now, int64_t /*granted_bytes*/) {
  absl::Duration timeout = absl::InfiniteDuration();
  if (deadline_ != TimePoint::max()) timeout = absl::FromChrono(deadline_ - now);
  return Opening{.head = ToHeaders(head_, authority_, tls_, timeout), .data = request_, .end_stream = request_ended_};
}

void ProxiedCall::OnRequestSent() {
  if (!time_.sent()) time_.OnSent(proxy_.link().now());
  OnRequestWritable();
}

void ProxiedCall::OnResponseHeld(HeldFor held_for) {
  if (client_ == nullptr || answered_) return;
  time_.OnHeld(proxy_.link().now(), held_for);
}

// Send the rest of the request when the worker's window opens.
void ProxiedCall::OnRequestWritable() {
  if (worker_ != nullptr && worker_->open() && !request_ended_) SendRequest("", /*end_stream=*/false);
}

void ProxiedCall::OnData(absl::string_view bytes, size_t window_bytes, bool end_stream) {
  ungranted_bytes_ += window_bytes;
  request_ended_ = request_ended_ || end_stream;
  if (answered_) return;  // the response is over
  if (replayable_) request_.append(bytes.data(), bytes.size());
  // While the stream to the worker is not open, do not grant the client more bytes.
  if (worker_ != nullptr && worker_->open()) {
    if (request_.size() > kMaxReplayBytes) ForgetRequest();
    SendRequest(bytes, end_stream);
  }
  CountRequest();
  if (end_stream) proxy_.link().FlushEarly();
}

// Grant the client more only after its bytes have left: this bounds the held part of a request by the client's window.
void ProxiedCall::SendRequest(absl::string_view bytes, bool end_stream) {
  const absl::StatusOr<size_t> kept = worker_->SendData(std::string(bytes), end_stream);
  if (!kept.ok()) return Fail(kept.status());
  if (*kept == 0) GrantRequest();
}

void ProxiedCall::GrantRequest() {
  const size_t bytes = std::exchange(ungranted_bytes_, 0);
  CountRequest();
  if (client_ != nullptr && !request_ended_) client_->Grant(*this, static_cast<uint32_t>(bytes));
}

// Afterwards the request cannot be sent again.
void ProxiedCall::ForgetRequest() {
  replayable_ = false;
  if (worker_ != nullptr) worker_->SetBeginsOnce();
  std::string().swap(request_);
  HeaderList().swap(head_.end_to_end);
  CountRequest();
}

// Bytes that the worker has not read count, because they are not granted to the client again. No event reports when a
// complete request has left. It counts until its response begins, or until ReleaseRequest checks it.
void ProxiedCall::CountRequest() {
  const size_t bytes = answered_ ? 0 : std::max(request_.size(), ungranted_bytes_) + SizeOf(head_.end_to_end);
  proxy_.CountHeldRequest(held_request_, static_cast<int64_t>(bytes));
}

// Drops the bytes that are kept only to send the request again. Ends the call if its worker has not read the request.
void ProxiedCall::ReleaseRequest() {
  const std::shared_ptr<ProxiedCall> self = shared_from_this();
  if (worker_ != nullptr && worker_->open()) {
    if (request_ended_ && worker_->request_left()) ungranted_bytes_ = 0;
    ForgetRequest();
    if (held_request_.bytes() <= proxy_.held_requests().share_bytes()) return;
  }
  Fail(absl::ResourceExhaustedError(absl::StrCat("the worker has not taken its request, and the proxy holds more than ",
                                                 proxy_.held_requests().max_bytes(), " bytes of such requests")));
}

// --- The response.

bool ProxiedCall::OnResponseHeaders(HeaderList headers, bool end_stream) {
  for (const HeaderField& field : headers) {
    if (end_stream && worker_ != nullptr && field.name == kTcpReportKey) worker_->worker().OnTcpReport(field.value);
  }
  if (client_ == nullptr || answered_) return false;
  ForgetRequest();
  client_->SendHeaders(*this, headers, end_stream);
  headers_sent_ = true;
  CountAnswer();
  if (!end_stream) return true;
  const std::optional<absl::StatusCode> code = StatusIn(headers);
  method_exists_ = code.has_value() && code != absl::StatusCode::kUnimplemented;
  EndAnswer(code.value_or(absl::StatusCode::kUnknown));
  return true;
}

bool ProxiedCall::OnResponseData(absl::string_view bytes, bool end_stream) {
  if (client_ == nullptr || answered_) return false;
  response_bytes_ += static_cast<int64_t>(bytes.size());
  proxy_.link().metrics().AddGoodput(bytes.size(), WorkerKind::kPrimary);
  client_->SendData(*this, std::string(bytes), end_stream, /*more=*/MayWaitForMore(bytes.size()));
  CountAnswer();
  if (end_stream) EndAnswer(absl::StatusCode::kUnknown);  // without trailers
  return true;
}

// When the held bytes reach the bound, each call still gets its share at a time: calls whose clients read continue.
int64_t ProxiedCall::RoomBytes() const {
  const HeldBytes& held = proxy_.held_answers();
  return held.full() ? held.share_bytes() : proxy_.options().max_held_bytes_per_call;
}

// Whether these bytes may wait for the rest of their message. Waiting bytes take at most half of the room, so that the
// rest is still requested from the worker, and arrives.
bool ProxiedCall::MayWaitForMore(size_t bytes) const {
  if (worker_ == nullptr || worker_->pending_message_bytes() == 0) return false;
  return client_->UnsentBytes(*this) + static_cast<int64_t>(bytes) < std::min(kMinPartBytes, RoomBytes() / 2);
}

int64_t ProxiedCall::WantedBytes() {
  return client_ == nullptr ? 0 : std::max<int64_t>(RoomBytes() - client_->UnsentBytes(*this), 0);
}

void ProxiedCall::OnClientTook() {
  CountAnswer();
  if (worker_ != nullptr) worker_->AskForMore();
}

void ProxiedCall::CountAnswer() {
  const int64_t unsent_bytes = client_->UnsentBytes(*this);
  if (unsent_bytes < held_answer_.bytes() || held_answer_.bytes() == 0) {
    stuck_since_ = unsent_bytes == 0 ? TimePoint::max() : proxy_.link().now();
  }
  proxy_.CountHeldAnswer(held_answer_, unsent_bytes);
  const int64_t asked_bytes = worker_ != nullptr ? worker_->asked_bytes() : 0;
  proxy_.held_answers().CountAsked(asked_bytes - std::exchange(asked_bytes_, asked_bytes));
}

void ProxiedCall::ReleaseAnswer() {
  FailStuck(StuckClients(proxy_.held_answers().max_bytes()));
}

ScheduledStream* ProxiedCall::LeaveWorker() {
  ScheduledStream* const worker = std::exchange(worker_, nullptr);
  if (client_ != nullptr) CountAnswer();
  return worker;
}

bool ProxiedCall::Conclude(StreamEnd end, const absl::Status& why) {
  const ScheduledStream* const worker = LeaveWorker();
  const bool ok = why.ok() && code_ == absl::StatusCode::kOk;
  if (client_ == nullptr) return ok;
  if (ok) proxy_.ObserveResponse(head_.path, response_bytes_, worker != nullptr && worker->messages() == 1);
  if (answered_) return ok;
  if (!why.ok()) {
    Fail(why);
  } else if (end.kind == StreamEnd::Kind::kReset || end.kind == StreamEnd::Kind::kUnhandled) {
    // The client can act on the code: for example, it may send the call again.
    EndAnswer(absl::StatusCode::kUnavailable);
    client_->Reset(*this, end.error);
  } else {
    Fail(absl::UnavailableError("the connection to the worker was lost"));
  }
  return ok;
}

bool ProxiedCall::OnStreamOver(const StreamEnd* end, const absl::Status& why) {
  if (end != nullptr) return Conclude(*end, why);
  LeaveWorker();
  if (!absl::IsUnavailable(why) || !StartElsewhere()) Fail(why);
  return false;
}

// Starts the call again at a different worker, if its worker could not be reached. A replayable request has not been
// processed by any worker.
bool ProxiedCall::StartElsewhere() {
  if (client_ == nullptr || answered_ || !replayable_ || ++unreached_ >= target_->workers()) return false;
  const absl::StatusOr<Target::Choice> choice = target_->Pick();
  if (!choice.ok() || !choice->worker->failure().ok()) return false;
  head_.block.clear();  // the block of its fan-out has counted this call already
  StartAt(*choice);
  return true;
}

void ProxiedCall::Fail(const absl::Status& reason) {
  if (client_ == nullptr || answered_) return;
  const TimePoint now = proxy_.link().now();
  const bool link_is_late = absl::IsDeadlineExceeded(reason) && now >= deadline_ && time_.LinkIsLate(now);
  const absl::Status why = link_is_late ? time_.WhyLinkIsLate(now, "the client to read") : reason;
  client_->SendHeaders(*this, headers_sent_ ? ToTrailers(why, "", {}) : ToTrailersOnly(why, "", {}), true);
  EndAnswer(why.code());
  ScheduledStream* const worker = LeaveWorker();
  if (worker != nullptr && !worker->over()) proxy_.link().CancelCall(*worker, why);
}

// The response may be complete, and unread.
void ProxiedCall::FailStuck(const absl::Status& why) {
  if (client_ == nullptr) return;
  const std::shared_ptr<ProxiedCall> self = shared_from_this();
  proxy_.metrics().CountStuckCall();
  Fail(why);
  if (client_ == nullptr) return;
  client_->Reset(*this, Http2Error::kEnhanceYourCalm);
  CountAnswer();
}

// If the client has more of its request to send, tell it to stop (RFC 9113, section 8.1).
void ProxiedCall::EndAnswer(absl::StatusCode code) {
  code_ = code;
  link_is_late_ = time_.LinkIsLate(proxy_.link().now());
  answered_ = true;
  ForgetRequest();
  if (!request_ended_) client_->EndSoon(*this);
}

void ProxiedCall::OnClosed(StreamEnd end) {
  const std::shared_ptr<ProxiedCall> self = shared_from_this();
  answered_ = true;
  ForgetRequest();
  ScheduledStream* const worker = LeaveWorker();
  proxy_.CountHeldAnswer(held_answer_, 0);
  client_->Forget(*this);
  client_ = nullptr;
  if (target_ != nullptr) target_->Leave(*this);
  if (worker != nullptr && !worker->over()) {
    worker->set_reset_error(ResetErrorOf(end));
    proxy_.link().CancelCall(*worker, absl::CancelledError("the client has given the call up"));
  }
  proxy_.OnCallEnded({.pattern = pattern_,
                      .path = head_.path,
                      .code = code_.value_or(absl::StatusCode::kCancelled),
                      .began = began_,
                      .sent = time_.sent(),
                      .link_is_late = link_is_late_,
                      .method_exists = method_exists_});
}

}  // namespace sluice
