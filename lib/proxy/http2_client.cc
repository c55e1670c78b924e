#include "lib/proxy/http2_client.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/proxy/client_connection.h"
#include "lib/proxy/forwarded_head.h"
#include "lib/proxy/proxy_loop.h"
#include "lib/scheduling/limit_status.h"

namespace sluice {
namespace {

constexpr size_t kMaxRefused = 100;  // streams of one connection that are refused with a reason, and still open

// `headers`: of the request, empty if it was not read.
void RecordRefusal(ProxyLoop& proxy, const ClientGroup& group, const HeaderList& headers, const absl::Status& why,
                   const std::string& limit) {
  proxy.OnCallEnded({.group = group.name(),
                     .worker = "",
                     .traffic_class = std::numeric_limits<size_t>::max(),
                     .traceparent = HeaderValue("traceparent", headers),
                     .sent_at = TimePoint::max(),
                     .ready_at = TimePoint::max(),
                     .granted = std::chrono::nanoseconds(0),
                     .response_bytes = 0,
                     .pattern = "",
                     .path = HeaderValue(":path", headers),
                     .code = why.code(),
                     .limit = limit,
                     .began = proxy.link().now(),
                     .sent = false,
                     .expired = false,
                     .link_is_late = false,
                     .method_exists = false,
                     .refused = true});
}

}  // namespace

std::unique_ptr<Http2Client> Http2Client::Make(ProxyLoop& proxy, ClientConnection& connection) {
  std::unique_ptr<Http2Client> client(new Http2Client(proxy, connection));
  auto session = Http2Session::Create(proxy.session_options(), *client);
  if (!session.ok()) return nullptr;
  client->session_ = *std::move(session);
  return client;
}

Http2Client::Http2Client(ProxyLoop& proxy, ClientConnection& connection)
    : proxy_(proxy), connection_(connection), id_(proxy.link().NewClient()) {}

Http2Client::~Http2Client() = default;

// --- The client's side.

void Http2Client::OnBytes(absl::string_view bytes) {
  const absl::Status received = session_->Receive(bytes);
  if (over_) return;
  read_is_due_ = false;
  if (backlog_) connection_.socket().SetReading(false);
  FlushLater();
  if (received.ok()) return EndIfDone();
  Flush();  // a GOAWAY with the reason
  connection_.End();
}

StreamEvents* Http2Client::OnStream(int32_t stream) {
  auto charge = std::make_unique<ClientCharge>();
  if (absl::Status taken = proxy_.groups().Take(group(), ClientLimit::kCalls, *charge); !taken.ok()) {
    return Refuse(stream, taken);
  }
  connection_.membership().SetIdle(false);
  auto call = std::make_shared<ProxiedCall>(proxy_, *this, stream, std::move(charge));
  return calls_.emplace(stream, std::move(call)).first->second.get();
}

void Http2Client::OnMalformedRequest(absl::string_view why) {
  connection_.Report(ProxyEvent::Kind::kRefused, connection_.connect_target(),
                     absl::StrCat("a call is reset with PROTOCOL_ERROR: ", why));
}

// A client that lets refusals pile up receives no reason: each one would take memory until it reads them.
StreamEvents* Http2Client::Refuse(int32_t stream, const absl::Status& why) {
  connection_.Report(ProxyEvent::Kind::kRefused, connection_.connect_target(), why.message());
  if (backlog_ || refused_.size() >= kMaxRefused) {
    RecordRefusal(proxy_, *group(), {}, absl::UnavailableError(""), LimitOf(why));  // the status of a reset in gRPC
    return nullptr;
  }
  const auto respond = [this, stream, why](const HeaderList& headers, const HeaderList& trailers) {
    RecordRefusal(proxy_, *group(), headers, why, LimitOf(why));
    session_->SendHeaders(stream, trailers, /*end_stream=*/true);
    FlushLater();
  };
  // Later, since the call is on the stack.
  const auto on_closed = [this, stream] {
    proxy_.link().AtEndOfTurn(
        [over = std::shared_ptr<RefusedRequest>(std::move(refused_.extract(stream).mapped()))] {});
  };
  auto call = std::make_unique<RefusedRequest>(why, proxy_.link().executor().Random(), respond, on_closed);
  return refused_.emplace(stream, std::move(call)).first->second.get();
}

// --- The calls.

void Http2Client::SendHeaders(const ProxiedCall& call, const HeaderList& headers, bool end_stream) {
  session_->SendHeaders(call.stream(), headers, end_stream);
  fed_.insert(call.stream());
  FlushLater();
}

void Http2Client::SendData(const ProxiedCall& call, std::string bytes, bool end_stream, bool more) {
  // The call requested no more bytes than it has room for.
  if (!session_->SendData(call.stream(), std::move(bytes), end_stream).ok()) {
    return Reset(call, Http2Error::kInternalError);
  }
  fed_.insert(call.stream());
  if (!more) FlushLater();
}

void Http2Client::Grant(const ProxiedCall& call, uint32_t bytes) {
  session_->Grant(call.stream(), bytes);
  FlushLater();
}

void Http2Client::Reset(const ProxiedCall& call, Http2Error error) {
  session_->Reset(call.stream(), error);
  FlushLater();
}

void Http2Client::EndSoon(const ProxiedCall& call) {
  ending_.push_back(call.stream());
}

int64_t Http2Client::UnsentBytes(const ProxiedCall& call) const {
  return UnsentBytes(call.stream());
}

int64_t Http2Client::UnsentBytes(int32_t stream) const {
  return static_cast<int64_t>(session_->unsent_bytes(stream) + session_->unsent_header_bytes(stream));
}

void Http2Client::Forget(const ProxiedCall& call) {
  calls_.erase(call.stream());
  if (calls_.empty() && !over_) connection_.membership().SetIdle(true);
  EndIfDone();
}

// --- The output.

void Http2Client::FlushLater() {
  if (!over_ && !std::exchange(flush_queued_, true)) proxy_.link().flushes().FlushLater(*this);
}

void Http2Client::Flush() {
  flush_queued_ = false;
  if (over_ || backlog_) return;  // a backlog waits for OnDrained
  std::string output;
  session_->Output(output);
  const bool may_have_more = output.size() >= proxy_.session_options().max_output_bytes;
  if (!output.empty()) connection_.Write(std::move(output));
  connection_.WatchSocket();
  // Send no more, and do not read the client: a client that does not read responses must not request more of them.
  if (connection_.socket().congested()) {
    backlog_ = true;
    if (!read_is_due_) connection_.socket().SetReading(false);
  } else if (may_have_more) {
    FlushLater();
  }
  EndAnswered();
  TellTaken();
}

void Http2Client::EndAnswered() {
  for (const int32_t stream : std::exchange(ending_, {})) {
    if (UnsentBytes(stream) > 0) {
      ending_.push_back(stream);
    } else if (calls_.contains(stream)) {
      session_->Reset(stream, Http2Error::kNoError);
      FlushLater();
    }
  }
}

// A call may request more of its response, or end, in OnClientTook.
void Http2Client::TellTaken() {
  for (const int32_t stream : std::exchange(fed_, {})) {
    const auto found = calls_.find(stream);
    if (found == calls_.end()) continue;
    if (UnsentBytes(stream) > 0) fed_.insert(stream);
    const std::shared_ptr<ProxiedCall> call = found->second;
    call->OnClientTook();
  }
}

void Http2Client::OnDrained() {
  connection_.WatchSocket();
  if (std::exchange(backlog_, false)) {
    // Read the client once before its responses fill the socket again, which they do at the end of this turn. Otherwise
    // a client whose responses never run out could not send a request, or cancel one.
    read_is_due_ = true;
    connection_.socket().SetReading(true);
  }
  FlushLater();
  EndIfDone();
}

// --- The end.

void Http2Client::AnnounceGoAway() {
  session_->AnnounceGoAway();
  FlushLater();
}

void Http2Client::GoAway() {
  session_->GoAway(Http2Error::kNoError);
  FlushLater();
  EndIfDone();
}

void Http2Client::Fail(const absl::Status& why) {
  const auto calls = calls_;
  for (const auto& [stream, call] : calls) call->Fail(why);
  session_->GoAway(Http2Error::kNoError);
  Flush();
}

void Http2Client::FailStuck(const absl::Status& why) {
  const auto calls = calls_;
  for (const auto& [stream, call] : calls) call->FailStuck(why);
}

void Http2Client::LookAround(TimePoint now) {
  Flush();
  const TimePoint unsent_since = connection_.WatchSocket();
  const std::chrono::nanoseconds timeout = proxy_.options().client_stall_timeout;
  const absl::Status stuck =
      AtLimit("limits.client_stall_timeout", absl::StrCat("the client has read nothing of the response for ",
                                                          absl::FormatDuration(absl::FromChrono(timeout))));
  if (unsent_since <= now - timeout) return connection_.EndStuck(stuck);
  const std::chrono::nanoseconds head_timeout = proxy_.options().opening_timeout;
  const auto calls = calls_;
  for (const auto& [stream, call] : calls) {
    if (call->AwaitsHeadSince(now - head_timeout)) {
      // End the connection: no other frame can come on it before these headers end, and it would count as busy.
      return connection_.Close(absl::DeadlineExceededError(
          absl::StrCat("the headers of a call have not come within limits.opening_timeout, ",
                       absl::FormatDuration(absl::FromChrono(head_timeout)))));
    }
    call->LookAround(now, now - timeout, stuck);
  }
}

// Ends the connection after a GOAWAY, once the last call has ended and the client has received its end.
void Http2Client::EndIfDone() {
  if (over_ || !session_->going_away() || !calls_.empty()) return;
  proxy_.link().AtEndOfTurn([this, weak = connection_.weak_from_this()] {
    const std::shared_ptr<ClientConnection> alive = weak.lock();
    if (alive == nullptr || over_ || !calls_.empty()) return;
    Flush();
    // Otherwise OnDrained ends it, when the client has read everything.
    if (connection_.socket().unsent_bytes() == 0) connection_.End();
  });
}

void Http2Client::OnDisconnected(const absl::Status& /*why*/) {
  connection_.End();
}

void Http2Client::OnEnd() {
  over_ = true;
  session_->Lose();
  proxy_.link().flushes().Forget(*this);
}

}  // namespace sluice
