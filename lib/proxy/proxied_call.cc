#include "lib/proxy/proxied_call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/grpc_wire/metadata_fields.h"
#include "lib/grpc_wire/request_parser.h"
#include "lib/grpc_wire/response_head.h"
#include "lib/link/method_history.h"
#include "lib/net/clock.h"
#include "lib/net/worker_address.h"
#include "lib/proxy/client_connection.h"
#include "lib/proxy/http2_client.h"
#include "lib/proxy/proxy_loop.h"
#include "lib/proxy/refused_request.h"
#include "lib/scheduling/limit_status.h"
#include "lib/tcp/tcp_report.h"

namespace sluice {
namespace {

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

// A hung worker without a limit of streams must not use up max_calls, so Worker::CallBound bounds its calls. A proxy
// with one worker has no calls to protect. Only calls with a worker use a place: a burst of calls may have arrived that
// still wait for the addresses of their target.
absl::Status CheckRoom(ProxyLoop& proxy, const Target& target, const Worker& worker) {
  if (proxy.targets().size() == 1 && target.workers() == 1) return absl::OkStatus();
  const int64_t calls = proxy.link().schedule().Load(worker.schedule_id()).calls;
  if (calls < Worker::kMinCalls) return absl::OkStatus();
  const ScheduleState link = proxy.link().schedule().State();
  const int64_t all_calls = link.submitted_calls - link.ended_calls;
  const int64_t bound = Worker::CallBound(static_cast<int64_t>(proxy.options().max_calls), all_calls);
  if (calls < bound) return absl::OkStatus();
  proxy.link().metrics().CountQueueRefusals(QueueRefusal::kWorker, 1);
  return AtLimit(
      "limits.calls",
      absl::StrCat(worker.target(), ": ", calls, " calls of this worker have not ended; the bound is ", bound,
                   ", the free places of the proxy, and limits.calls is ", proxy.options().max_calls));
}

// At a route an authority may have a path. It names no worker then: a header or a route may name one by a path, and not
// each client may send that header.
absl::Status CheckNamesWorker(const std::string& authority) {
  if (!absl::StrContains(authority, '/')) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", Snippet(authority), "\" names no worker: an :authority with a \"/\" is not host:port"));
}

// A client that reached a worker by CONNECT may call it by a different name, as it could over a direct connection. It
// must be a name that this client may call: a gateway that serves many names trusts the certificate of this proxy.
std::string AuthorityInTunnel(const TargetPolicy& policy, const std::string& target, const std::string& authority) {
  const auto may_call = [&policy](const std::string& name) { return policy.CheckTarget(name).ok(); };
  const std::string port = target.substr(std::min(target.rfind(':'), target.size()));
  if (IsUnixAddress(authority)) return AuthorityOf(target);  // a path, which a worker may refuse
  if (!authority.empty() && (may_call(authority) || may_call(authority + port))) return authority;
  return AuthorityOf(target);
}

constexpr char kPushbackField[] = "grpc-retry-pushback-ms";
constexpr char kAttemptsField[] = "grpc-previous-rpc-attempts";

// A worker may say when the client may send the call again (gRFC A6). The client then decides.
bool HasPushback(const HeaderList& trailers) {
  return std::any_of(trailers.begin(), trailers.end(), [](const auto& field) { return field.name == kPushbackField; });
}

size_t MaxAttempts(const ForwardedHead& head, const ProxyOptions& options) {
  return head.max_attempts.value_or(options.max_attempts);
}

// Clients reset a stream at its deadline. Their time begins when they send the request, and ours when it comes, so
// their reset comes before our deadline, by at most 10 ms, or a tenth of a short time.
bool IsResetAtDeadline(const StreamEnd& end, TimePoint began, TimePoint deadline, TimePoint now) {
  const auto early = std::min<TimePoint::duration>(std::chrono::milliseconds(10), (deadline - began) / 10);
  return end.kind == StreamEnd::Kind::kReset && now >= deadline - early;
}

// If the link is late, and not the worker, the client receives what it waited for.
absl::Status LateReason(const absl::Status& why, TimePoint now, TimePoint deadline, const AttemptTime& time) {
  const bool link_is_late = absl::IsDeadlineExceeded(why) && now >= deadline && time.LinkIsLate(now);
  return link_is_late ? time.WhyLinkIsLate(now, "the client to read") : why;
}

}  // namespace

absl::Status Unreached(const std::string& target) {
  return absl::UnavailableError(absl::StrCat(target, " cannot be reached; the log of the proxy has the reason"));
}

absl::Status StuckClients(int64_t max_held_bytes) {
  return AtLimit("limits.held", absl::StrCat("the client does not read, and more than ", max_held_bytes,
                                             " bytes are held for all clients"));
}

ProxiedCall::ProxiedCall(ProxyLoop& proxy, Http2Client& client, int32_t stream, std::unique_ptr<ClientCharge> charge)
    : proxy_(proxy),
      client_(&client),
      stream_(stream),
      charge_(std::move(charge)),
      began_(proxy.link().now()),
      held_request_([this] { ReleaseRequest(); }, client.group()->index()),
      held_response_(proxy.held_answers(), client.group()->index(), proxy.options().max_held_bytes_per_call,
                     [this] { FailStuck(StuckClients(proxy_.held_answers().max_bytes())); }) {
  proxy.OnCallBegan();
  charge_->SetGiveWay([this](const absl::Status& why) {
    // Later: the client that needs the place may be on the stack.
    proxy_.link().AtEndOfTurn([weak = weak_from_this(), why] {
      const std::shared_ptr<ProxiedCall> alive = weak.lock();
      if (alive == nullptr) return;
      alive->logic_.wants_response() ? alive->Fail(why) : alive->FailStuck(why);
    });
  });
}

// Reports an event, and applies what the logic decides. That may end the client's stream, and with it the connection's
// reference to the call. An action may cause an event. Its actions follow those that wait.
template <class Event>
void ProxiedCall::Drive(Event&& event) {
  const std::shared_ptr<ProxiedCall> self = shared_from_this();
  const bool wanted = logic_.wants_response();
  event(logic_, actions_);
  if (wanted && !logic_.wants_response()) {
    if (logic_.code().has_value()) link_is_late_ = time_.LinkIsLate(proxy_.link().now());
    CountRequest();
  }
  if (applying_) return;
  applying_ = true;
  for (size_t next = 0; next < actions_.size(); ++next) Apply(ProxyCallLogic::Action(actions_[next]));
  actions_.clear();
  applying_ = false;
}

void ProxiedCall::Apply(const ProxyCallLogic::Action& action) {
  using Kind = ProxyCallLogic::Action::Kind;
  switch (action.kind) {
    case Kind::kRoute:
      return Route();
    case Kind::kStart:
      return Start();
    case Kind::kSend:
      return Send();
    case Kind::kGrantRequest:
      return GrantRequest();
    case Kind::kForgetRequest:
      return ForgetRequest();
    case Kind::kCancelWorker:
      if (ScheduledStream* const worker = LeaveWorker(); worker != nullptr && !worker->over()) {
        worker->set_reset_error(action.error);
        proxy_.link().CancelCall(*worker, action.status);
      }
      return;
    case Kind::kRefuse:
    case Kind::kRespond:
    case Kind::kStopRequest:
    case Kind::kResetClient:
      if (client_ != nullptr) ApplyToClient(action);
      return;
  }
}

void ProxiedCall::ApplyToClient(const ProxyCallLogic::Action& action) {
  using Kind = ProxyCallLogic::Action::Kind;
  if (limit_.empty()) limit_ = LimitOf(action.status);
  if (action.kind == Kind::kStopRequest) return client_->EndSoon(*this);
  if (action.kind == Kind::kResetClient) {
    client_->Reset(*this, action.error);
  } else if (action.kind == Kind::kRefuse) {
    client_->SendHeaders(*this, ToRefusal(action.status), /*end_stream=*/true);
  } else {
    const absl::Status& status = action.status;
    HeaderList trailers = action.begun ? ToTrailers(status, "", {}) : ToTrailersOnly(status, "", {});
    if (!limit_.empty() || expired_) trailers.push_back(RetryPushback(proxy_.link().executor().Random()));
    client_->SendHeaders(*this, trailers, true);
  }
  if (client_ != nullptr) CountResponse();
}

// --- The request.

void ProxiedCall::OnHeaders(HeaderList headers, bool end_stream) {
  absl::Status parsed;
  if (logic_.request() == ProxyCallLogic::Request::kHead) {
    absl::StatusOr<ForwardedHead> head = ParseForwardedHead(std::move(headers), proxy_.options().worker_header);
    parsed = head.status();
    if (parsed.ok()) parsed = ReadClass(head->traffic_class);
    if (parsed.ok()) {
      head_ = *std::move(head);
      traceparent_ = HeaderValue("traceparent", head_.end_to_end);
      if (head_.timeout != absl::InfiniteDuration()) deadline_ = DeadlineAfter(began_, head_.timeout);
    } else {
      client_->connection().Report(ProxyEvent::Kind::kRefused, "", parsed.message());
    }
  }
  Drive([&](ProxyCallLogic& logic, auto& actions) { logic.OnRequestHeaders(end_stream, parsed, actions); });
  if (end_stream && logic_.wants_response()) proxy_.link().flushes().FlushEarly();
}

absl::Status ProxiedCall::ReadClass(const std::string& name) {
  const std::string& own = client_->connection().policy()->traffic_class;
  if (!own.empty() && !name.empty() && name != own) {
    return absl::PermissionDeniedError(
        absl::StrCat(kClassField, " \"", name, "\": calls of this client are in class \"", own, "\""));
  }
  const auto found = TrafficClassIndex(proxy_.link().schedule().options().classes, own.empty() ? name : own);
  if (!found.ok()) return absl::InvalidArgumentError(absl::StrCat(kClassField, " ", found.status().message()));
  traffic_class_ = *found;
  return absl::OkStatus();
}

void ProxiedCall::Route() {
  ClientConnection& connection = client_->connection();
  bool by_authority = false;
  const std::string name = connection.TargetOf(head_, by_authority);
  absl::Status routed = by_authority ? CheckNamesWorker(name) : absl::OkStatus();
  if (routed.ok()) routed = AddVia(head_, proxy_.pseudonym());
  if (!routed.ok()) {
    connection.Report(ProxyEvent::Kind::kRefused, name, routed.message());
    return Drive([&](ProxyCallLogic& logic, auto& actions) { logic.OnTarget(routed, actions); });
  }
  CountRequest();
  authority_ = connection.connect_target().empty()
                   ? AuthorityOf(name)
                   : AuthorityInTunnel(connection.policy()->workers, name, head_.authority);
  head_.client = connection.membership().identity();
  absl::StatusOr<std::shared_ptr<Target>> target =
      proxy_.targets().Find({connection.policy(), &connection.policy()->workers}, name, client_->group());
  if (!target.ok()) {
    connection.Report(ProxyEvent::Kind::kRefused, name, target.status().message());
    return Drive([&](ProxyCallLogic& logic, auto& actions) { logic.OnTarget(target.status(), actions); });
  }
  route_.SetTarget(*std::move(target));
  OnTargetStep();
}

void ProxiedCall::OnTargetStep() {
  if (!route_.target()->has_family()) return route_.target()->Wait(*this);
  Drive([](ProxyCallLogic& logic, auto& actions) { logic.OnTarget(absl::OkStatus(), actions); });
}

void ProxiedCall::Start() {
  const absl::StatusOr<std::shared_ptr<Worker>> worker = route_.Next();
  const absl::Status may_call = worker.ok() ? CheckRoom(proxy_, *route_.target(), **worker) : worker.status();
  if (!may_call.ok()) {
    ClientConnection& connection = client_->connection();
    connection.Report(ProxyEvent::Kind::kRefused, route_.target()->name(), may_call.message());
    const bool hides = absl::IsUnavailable(may_call) && !connection.membership().is_local();
    const absl::Status told = hides ? Unreached(route_.target()->name()) : may_call;
    return Drive([&](ProxyCallLogic& logic, auto& actions) { logic.OnNotStarted(told, actions); });
  }
  tls_ = (*worker)->tls() != nullptr;
  worker_address_ = (*worker)->target();
  std::optional<int64_t> response_bytes = head_.response_bytes;
  if (!response_bytes.has_value()) response_bytes = proxy_.methods().ResponseBytes(head_.path);
  const ScheduledStream::Options options{
      .worker = *worker,
      .response_bytes =
          response_bytes.value_or(MethodHistory::FirstResponseBytes(proxy_.link().schedule().options().profile)),
      .many_messages = true,
      .may_idle = proxy_.methods().MayIdle(head_.path),
      .deadline = deadline_,
      .client = client_->id()};
  // Submit may already call the stream's event handlers.
  const auto make = [&] {
    auto stream = std::make_unique<ScheduledStream>(proxy_.link(), options, shared_from_this());
    worker_ = stream.get();
    return stream;
  };
  const absl::Status submitted = proxy_.Submit(make, head_, traffic_class_, deadline_);
  if (submitted.ok()) return;
  worker_ = nullptr;
  Drive([&](ProxyCallLogic& logic, auto& actions) { logic.OnNotStarted(submitted, actions); });
}

std::optional<StreamUser::Opening> ProxiedCall::BeginRequest(TimePoint now, int64_t /*granted_bytes*/) {
  absl::Duration timeout = absl::InfiniteDuration();
  if (deadline_ != TimePoint::max()) timeout = absl::FromChrono(deadline_ - now);
  Opening opening{.head = ToHeaders(head_, authority_, tls_, timeout),
                  .data = request_,
                  .end_stream = logic_.request() == ProxyCallLogic::Request::kWhole};
  if (route_.retries() > 0) opening.head.push_back({kAttemptsField, absl::StrCat(route_.retries())});
  return opening;
}

void ProxiedCall::OnRequestSent() {
  const TimePoint now = proxy_.link().now();
  if (!time_.sent()) {
    sent_ = now;
    time_.OnSent(now);
  }
  route_.OnSent(now);
  OnRequestWritable();
}

void ProxiedCall::OnResponseHeld(HeldFor held_for) {
  if (logic_.wants_response()) time_.OnHeld(proxy_.link().now(), held_for);
}

void ProxiedCall::OnRequestWritable() {
  Drive([](ProxyCallLogic& logic, auto& actions) { logic.OnRequestWritable(actions); });
}

void ProxiedCall::OnData(absl::string_view bytes, size_t window_bytes, bool end_stream) {
  ungranted_bytes_ += window_bytes;
  if (logic_.may_start_again()) request_.append(bytes.data(), bytes.size());
  const bool sendable = worker_ != nullptr && worker_->open();
  if (sendable) sending_.assign(bytes.data(), bytes.size());
  Drive([&](ProxyCallLogic& logic, auto& actions) {
    logic.OnRequestData(end_stream, sendable, request_.size(), actions);
  });
  if (!logic_.wants_response()) return;
  CountRequest();
  if (end_stream) proxy_.link().flushes().FlushEarly();
}

void ProxiedCall::Send() {
  const std::string bytes = std::exchange(sending_, {});
  if (worker_ == nullptr || !worker_->open()) return;
  const absl::StatusOr<size_t> waiting_bytes =
      worker_->SendData(bytes, logic_.request() == ProxyCallLogic::Request::kWhole);
  Drive([&](ProxyCallLogic& logic, auto& actions) { logic.OnSent(waiting_bytes, actions); });
}

void ProxiedCall::GrantRequest() {
  const size_t bytes = std::exchange(ungranted_bytes_, 0);
  CountRequest();
  if (client_ != nullptr && logic_.request() != ProxyCallLogic::Request::kWhole) {
    client_->Grant(*this, static_cast<uint32_t>(bytes));
  }
}

void ProxiedCall::ForgetRequest() {
  if (worker_ != nullptr) worker_->SetBeginsOnce();
  std::string().swap(request_);
  HeaderList().swap(head_.end_to_end);
  CountRequest();
}

// Bytes that the worker has not read count, because they are not granted to the client again. No event reports when a
// complete request has left. It counts until its response begins, or until ReleaseRequest checks it.
void ProxiedCall::CountRequest() {
  const size_t bytes =
      logic_.wants_response() ? std::max(request_.size(), ungranted_bytes_) + SizeOf(head_.end_to_end) : 0;
  proxy_.held_requests().Count(held_request_, static_cast<int64_t>(bytes), proxy_.link().now());
}

// Drops the bytes that are kept only to send the request again. Ends the call if its worker has not read the request.
void ProxiedCall::ReleaseRequest() {
  if (worker_ != nullptr && worker_->open()) {
    if (logic_.request() == ProxyCallLogic::Request::kWhole && worker_->request_left()) ungranted_bytes_ = 0;
    Drive([](ProxyCallLogic& logic, auto& actions) { logic.ForgetRequest(actions); });
    CountRequest();
    if (held_request_.bytes() <= proxy_.held_requests().share_bytes()) return;
  }
  Fail(AtLimit("limits.held", absl::StrCat("the worker has not taken its request, and the proxy holds more than ",
                                           proxy_.held_requests().max_bytes(), " bytes of such requests")));
}

// --- The response.

bool ProxiedCall::OnResponseHeaders(HeaderList headers, bool end_stream) {
  for (const HeaderField& field : headers) {
    if (end_stream && worker_ != nullptr && field.name == kTcpReportKey) worker_->worker().OnTcpReport(field.value);
  }
  if (!logic_.wants_response()) return false;
  // A stream whose request is not complete would not end.
  retries_ = end_stream && logic_.request() == ProxyCallLogic::Request::kWhole && logic_.may_start_again() &&
             StatusIn(headers) == absl::StatusCode::kUnavailable && !HasPushback(headers) &&
             route_.FindRetry(MaxAttempts(head_, proxy_.options()), proxy_.options().retry_throttle);
  if (retries_) return true;
  if (ready_ == TimePoint::max()) ready_ = proxy_.link().now();
  client_->SendHeaders(*this, headers, end_stream);
  CountResponse();
  Drive([&](ProxyCallLogic& logic, auto& actions) { logic.OnResponseHeaders(end_stream, StatusIn(headers), actions); });
  return true;
}

bool ProxiedCall::OnResponseData(absl::string_view bytes, bool end_stream) {
  if (!logic_.wants_response()) return false;
  response_bytes_ += static_cast<int64_t>(bytes.size());
  proxy_.link().metrics().AddGoodput(bytes.size(), WorkerKind::kPrimary);
  const bool has_more = worker_ != nullptr && worker_->response().pending_message_bytes() > 0;
  const int64_t unsent_bytes = client_->UnsentBytes(*this) + static_cast<int64_t>(bytes.size());
  client_->SendData(*this, std::string(bytes), end_stream,
                    /*more=*/!end_stream && has_more && held_response_.MayWaitForMore(unsent_bytes));
  CountResponse();
  if (end_stream) Drive([](ProxyCallLogic& logic, auto& actions) { logic.OnResponseEnd(actions); });
  return true;
}

int64_t ProxiedCall::WantedBytes() {
  return client_ == nullptr ? 0 : held_response_.WantedBytes(client_->UnsentBytes(*this));
}

void ProxiedCall::OnClientTook() {
  CountResponse();
  if (worker_ != nullptr) worker_->AskForMore();
}

void ProxiedCall::CountResponse() {
  if (client_ != nullptr) held_response_.CountUnsent(client_->UnsentBytes(*this), proxy_.link().now());
  held_response_.CountAsked(worker_ != nullptr ? worker_->response().asked_bytes() : 0);
}

ScheduledStream* ProxiedCall::LeaveWorker() {
  ScheduledStream* const worker = std::exchange(worker_, nullptr);
  CountResponse();
  return worker;
}

bool ProxiedCall::OnStreamOver(const StreamEnd* end, const absl::Status& why) {
  const ScheduledStream* const worker = LeaveWorker();
  expired_ = worker != nullptr && worker->expired;
  if (end == nullptr && absl::IsUnavailable(why)) {
    const bool other = logic_.may_start_again() && route_.FindOther();
    if (other) head_.block.clear();  // the block of its fan-out has counted this call already
    const bool hides = !other && client_ != nullptr && !client_->connection().membership().is_local();
    if (hides) client_->connection().Report(ProxyEvent::Kind::kRefused, route_.target()->name(), why.message());
    const absl::Status told = hides ? Unreached(route_.target()->name()) : why;
    Drive([&](ProxyCallLogic& logic, auto& actions) { logic.OnUnreached(told, other, actions); });
    return false;
  }
  const bool lost =
      end != nullptr && why.ok() && (end->kind == StreamEnd::Kind::kLost || end->kind == StreamEnd::Kind::kUnhandled);
  const bool failed = std::exchange(retries_, false) && logic_.wants_response();
  if (failed || (lost && logic_.may_start_again() &&
                 route_.FindRetry(MaxAttempts(head_, proxy_.options()), proxy_.options().retry_throttle))) {
    route_.OnEnded({.method = head_.path, .code = absl::StatusCode::kUnavailable}, proxy_.options().retry_throttle);
    proxy_.link().metrics().CountCallRetry();
    head_.block.clear();  // the block of its fan-out has counted this call already
    Drive([&](ProxyCallLogic& logic, auto& actions) {
      logic.OnUnreached(absl::UnavailableError("the worker has failed"), /*other=*/true, actions);
    });
    return false;
  }
  absl::Status reason = why;
  if (logic_.wants_response()) reason = LateReason(why, proxy_.link().now(), deadline_, time_);
  bool ok = false;
  Drive([&](ProxyCallLogic& logic, auto& actions) { ok = logic.OnStreamOver(end, reason, actions); });
  // If the client is gone, the proxy may be gone, too.
  const absl::StatusCode code = logic_.code().value_or(absl::StatusCode::kUnknown);
  route_.OnEnded({.method = head_.path,
                  .code = code,
                  .has_status = logic_.method_exists(),
                  .link_is_late = expired_ || (link_is_late_ && code == absl::StatusCode::kDeadlineExceeded)},
                 client_ != nullptr ? proxy_.options().retry_throttle : RetryThrottle::Options());
  if (ok && client_ != nullptr) {
    proxy_.methods().ObserveResponse(head_.path, response_bytes_,
                                     worker != nullptr && worker->response().messages() == 1);
  }
  return ok;
}

// --- The end.

void ProxiedCall::Fail(const absl::Status& why) {
  if (!logic_.wants_response()) return;
  const absl::Status reason = LateReason(why, proxy_.link().now(), deadline_, time_);
  Drive([&](ProxyCallLogic& logic, auto& actions) { logic.Fail(reason, actions); });
}

void ProxiedCall::FailStuck(const absl::Status& why) {
  if (client_ == nullptr) return;
  proxy_.metrics().CountStuckCall();
  Drive([&](ProxyCallLogic& logic, auto& actions) { logic.FailStuck(why, actions); });
}

void ProxiedCall::LookAround(TimePoint now, TimePoint stuck_since, const absl::Status& stuck) {
  if (held_response_.stuck_since() <= stuck_since) {
    FailStuck(stuck);
  } else if (deadline_ <= now) {
    Fail(absl::DeadlineExceededError("the deadline passed, and the client has not ended the call"));
  }
}

void ProxiedCall::OnClosed(StreamEnd end) {
  const std::shared_ptr<ProxiedCall> self = shared_from_this();
  held_response_.CountUnsent(0, proxy_.link().now());
  const std::shared_ptr<ClientGroup> group = client_->group();
  client_->Forget(*this);
  client_ = nullptr;
  charge_->Keep();
  if (route_.target() != nullptr) route_.target()->Leave(*this);
  const TimePoint now = proxy_.link().now();
  const absl::Status why =
      IsResetAtDeadline(end, began_, deadline_, now)
          ? LateReason(absl::DeadlineExceededError("the deadline passed, and the client has given the call up"), now,
                       deadline_, time_)
          : absl::CancelledError("the client has given the call up");
  Drive([&](ProxyCallLogic& logic, auto& actions) { logic.OnClosed(end, why, actions); });
  proxy_.OnCallEnded({.group = group->name(),
                      .worker = worker_address_,
                      .traffic_class = traffic_class_,
                      .traceparent = traceparent_,
                      .sent_at = sent_,
                      .ready_at = ready_,
                      .granted = time_.sent() ? time_.OfLink(now) : std::chrono::nanoseconds(0),
                      .response_bytes = response_bytes_,
                      .pattern = route_.pattern(),
                      .path = head_.path,
                      .code = *logic_.code(),
                      .limit = limit_,
                      .began = began_,
                      .sent = time_.sent(),
                      .expired = expired_,
                      .link_is_late = link_is_late_,
                      .method_exists = logic_.method_exists()});
}

}  // namespace sluice
