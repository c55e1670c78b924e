#include "lib/proxy/client_connection.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/proxy/proxy_loop.h"
#include "lib/proxy/tunnel.h"

namespace sluice {

ClientConnection::ClientConnection(ProxyLoop& proxy, ClientOrigin origin, const AcceptedSocket& accept)
    : proxy_(proxy), origin_(std::move(origin)), socket_(accept(*this)) {
  opening_timer_ = proxy_.link().timers().Set(proxy_.link().now() + proxy_.options().opening_timeout,
                                              [this] { OnOpeningTimeout(); });
}

ClientConnection::~ClientConnection() = default;

// --- The opening.

void ClientConnection::OnOpeningTimeout() {
  opening_timer_ = TimerQueue::Id();
  if (!connected_) {
    proxy_.OnHandshakeFailed(absl::DeadlineExceededError(
        absl::StrCat(origin_.peer, " has not completed its handshake within limits.opening_timeout, ",
                     absl::FormatDuration(absl::FromChrono(proxy_.options().opening_timeout)))));
  }
  End();
}

void ClientConnection::OnBytes(absl::string_view bytes) {
  switch (phase_) {
    case Phase::kOpening:
    case Phase::kInTunnel:
      return Open(bytes);
    case Phase::kHttp2:
      return Receive(bytes);
    case Phase::kTunnel:
      return tunnel_->Write(std::string(bytes));
    case Phase::kConnecting:
      // The client does not wait until its tunnel is open.
      if (early_.size() + bytes.size() > ClientOpening::kMaxHeadBytes) return End();
      early_.append(bytes.data(), bytes.size());
      return;
    case Phase::kLeaving:
    case Phase::kRefused:
    case Phase::kOver:
      return;
  }
}

void ClientConnection::Open(absl::string_view bytes) {
  switch (opening_.Read(bytes)) {
    case ClientOpening::Kind::kUnknown:
      return;
    case ClientOpening::Kind::kHttp2:
      return StartHttp2(opening_.TakeRest());
    case ClientOpening::Kind::kConnect:
    case ClientOpening::Kind::kOther:
      if (phase_ == Phase::kInTunnel) return StartTunnel(opening_.TakeAll(), TunnelKind::kWorker);
      if (opening_.kind() == ClientOpening::Kind::kConnect) return OnConnectRequest();
      return RefuseHttp1(opening_.refusal());
  }
}

void ClientConnection::StartHttp2(const std::string& bytes) {
  proxy_.link().timers().Clear(opening_timer_);
  auto session = Http2Session::Create(proxy_.session_options(), *this);
  if (!session.ok()) return End();
  session_ = *std::move(session);
  phase_ = Phase::kHttp2;
  proxy_.metrics().CountConnection(connect_target_.empty() ? ProxyConnection::kHttp2 : ProxyConnection::kConnect);
  if (going_away_) AnnounceGoAway();
  Receive(bytes);
}

// --- HTTP/2.

void ClientConnection::Receive(absl::string_view bytes) {
  const absl::Status received = session_->Receive(bytes);
  if (phase_ == Phase::kOver) return;
  read_is_due_ = false;
  if (backlog_) socket_->SetReading(false);
  FlushLater();
  if (received.ok()) return EndIfDone();
  Flush();  // a GOAWAY with the reason
  End();
}

StreamEvents* ClientConnection::OnStream(int32_t stream) {
  if (!proxy_.MayTakeCall()) return nullptr;
  IdleHook::unlink();
  auto call = std::make_shared<ProxiedCall>(proxy_, *this, stream);
  return calls_.emplace(stream, std::move(call)).first->second.get();
}

std::string ClientConnection::TargetOf(const ForwardedHead& head) const {
  if (!origin_.route.empty()) return origin_.route;
  if (!connect_target_.empty()) return connect_target_;
  return head.worker.empty() ? head.authority : head.worker;
}

const std::shared_ptr<const TargetPolicy>& ClientConnection::policy() {
  if (policies_ != proxy_.policies()) {
    policies_ = proxy_.policies();
    const auto has_one_of = [this](const auto& names) { return socket_->PeerHasOneOf(names); };
    policy_ = {policies_, &policies_->Find(origin_.user, has_one_of)};
  }
  return policy_;
}

void ClientConnection::SendHeaders(const ProxiedCall& call, const HeaderList& headers, bool end_stream) {
  session_->SendHeaders(call.stream(), headers, end_stream);
  fed_.insert(call.stream());
  FlushLater();
}

void ClientConnection::SendData(const ProxiedCall& call, std::string bytes, bool end_stream, bool more) {
  // The call requested no more bytes than it has room for.
  if (!session_->SendData(call.stream(), std::move(bytes), end_stream).ok()) {
    return Reset(call, Http2Error::kInternalError);
  }
  fed_.insert(call.stream());
  if (!more) FlushLater();
}

void ClientConnection::Grant(const ProxiedCall& call, uint32_t bytes) {
  session_->Grant(call.stream(), bytes);
  FlushLater();
}

void ClientConnection::Reset(const ProxiedCall& call, Http2Error error) {
  session_->Reset(call.stream(), error);
  FlushLater();
}

void ClientConnection::EndSoon(const ProxiedCall& call) {
  ending_.push_back(call.stream());
}

int64_t ClientConnection::UnsentBytes(const ProxiedCall& call) const {
  return UnsentBytes(call.stream());
}

int64_t ClientConnection::UnsentBytes(int32_t stream) const {
  return static_cast<int64_t>(session_->unsent_bytes(stream) + session_->unsent_header_bytes(stream));
}

void ClientConnection::Forget(const ProxiedCall& call) {
  calls_.erase(call.stream());
  if (calls_.empty() && phase_ != Phase::kOver) proxy_.OnIdle(*this);
  EndIfDone();
}

void ClientConnection::FlushLater() {
  if (phase_ != Phase::kOver && !std::exchange(flush_queued_, true)) proxy_.link().flushes().FlushLater(*this);
}

void ClientConnection::Flush() {
  flush_queued_ = false;
  if (session_ == nullptr || phase_ != Phase::kHttp2) return;
  if (backlog_) return;  // until OnDrained
  std::string output;
  session_->Output(output);
  const bool may_have_more = output.size() >= proxy_.session_options().max_output_bytes;
  if (!output.empty()) Write(std::move(output));
  WatchSocket();
  // Send no more, and do not read the client: a client that does not read responses must not request more of them.
  if (socket_->congested()) {
    backlog_ = true;
    if (!read_is_due_) socket_->SetReading(false);
  } else if (may_have_more) {
    FlushLater();
  }
  for (const int32_t stream : std::exchange(ending_, {})) {
    if (UnsentBytes(stream) > 0) {
      ending_.push_back(stream);
    } else if (calls_.contains(stream)) {
      session_->Reset(stream, Http2Error::kNoError);
      FlushLater();
    }
  }
  TellTaken();
}

void ClientConnection::Write(std::string bytes) {
  unsent_.OnWritten(bytes.size());
  socket_->Write(std::move(bytes));
}

void ClientConnection::WatchSocket() {
  const size_t unsent_bytes = socket_->unsent_bytes();
  proxy_.CountHeldAnswer(held_, static_cast<int64_t>(unsent_bytes));
  unsent_.Look(unsent_bytes, proxy_.link().now());
}

void ClientConnection::ReleaseSocket() {
  EndStuck(StuckClients(proxy_.held_answers().max_bytes()));
}

// A call may request more of its response, or end, in OnClientTook.
void ClientConnection::TellTaken() {
  for (const int32_t stream : std::exchange(fed_, {})) {
    const auto found = calls_.find(stream);
    if (found == calls_.end()) continue;
    if (UnsentBytes(stream) > 0) fed_.insert(stream);
    const std::shared_ptr<ProxiedCall> call = found->second;
    call->OnClientTook();
  }
}

void ClientConnection::OnDrained() {
  if (phase_ == Phase::kRefused) return End();
  if (phase_ == Phase::kTunnel) return tunnel_->SetReading(true);
  if (phase_ != Phase::kHttp2) return;
  WatchSocket();
  if (std::exchange(backlog_, false)) {
    // Read the client once before its responses fill the socket again, which they do at the end of this turn. Otherwise
    // a client whose responses never run out could not send a request, or cancel one.
    read_is_due_ = true;
    socket_->SetReading(true);
  }
  FlushLater();
  EndIfDone();
}

// --- The end.

void ClientConnection::AnnounceGoAway() {
  going_away_ = true;
  if (session_ == nullptr) return;
  session_->AnnounceGoAway();
  FlushLater();
}

void ClientConnection::GoAway() {
  if (phase_ == Phase::kTunnel || phase_ == Phase::kLeaving) return;
  if (phase_ != Phase::kHttp2) return End();
  session_->GoAway(Http2Error::kNoError);
  FlushLater();
  EndIfDone();
}

void ClientConnection::Close(const absl::Status& why) {
  const auto calls = calls_;
  for (const auto& [stream, call] : calls) call->Fail(why);
  if (phase_ == Phase::kHttp2) {
    session_->GoAway(Http2Error::kNoError);
    Flush();
  }
  End();
}

void ClientConnection::LookAround(TimePoint now) {
  if (phase_ == Phase::kTunnel || phase_ == Phase::kLeaving) return LookAtTunnel(now);
  if (phase_ != Phase::kHttp2 && phase_ != Phase::kRefused) return;
  Flush();
  WatchSocket();
  const std::chrono::nanoseconds timeout = proxy_.options().client_stall_timeout;
  const absl::Status stuck = absl::ResourceExhaustedError(
      absl::StrCat("the client took nothing of the answer for ", absl::FormatDuration(absl::FromChrono(timeout))));
  if (unsent_.since() <= now - timeout) return EndStuck(stuck);
  const std::chrono::nanoseconds head_timeout = proxy_.options().opening_timeout;
  const auto calls = calls_;
  for (const auto& [stream, call] : calls) {
    if (!call->has_head() && call->began() <= now - head_timeout) {
      // End the connection: no other frame can come on it before these headers end, and it would count as busy.
      return Close(absl::DeadlineExceededError(absl::StrCat("the headers of a call have not come within ",
                                                            "limits.opening_timeout, ",
                                                            absl::FormatDuration(absl::FromChrono(head_timeout)))));
    }
    if (call->stuck_since() <= now - timeout) {
      call->FailStuck(stuck);
    } else if (call->deadline() <= now) {
      call->Fail(absl::DeadlineExceededError("the deadline passed, and the client has not ended the call"));
    }
  }
}

// End the connection: a reset of a stream would not leave.
void ClientConnection::EndStuck(const absl::Status& why) {
  const auto calls = calls_;
  for (const auto& [stream, call] : calls) call->FailStuck(why);
  End();
}

// Ends the connection after a GOAWAY, once the last call has ended and the client has received its end.
void ClientConnection::EndIfDone() {
  if (phase_ != Phase::kHttp2 || !session_->going_away() || !calls_.empty()) return;
  proxy_.link().AtEndOfTurn([weak = weak_from_this()] {
    const std::shared_ptr<ClientConnection> self = weak.lock();
    if (self == nullptr || self->phase_ != Phase::kHttp2 || !self->calls_.empty()) return;
    self->Flush();
    if (self->socket_->unsent_bytes() == 0)
      self->End();  // otherwise OnDrained ends it, when the client has read everything
  });
}

void ClientConnection::OnDisconnected(absl::Status why) {
  if (phase_ == Phase::kOver) return;
  if (!connected_) proxy_.OnHandshakeFailed(why);
  if (phase_ == Phase::kTunnel) return LeaveTunnel();
  End();
}

void ClientConnection::End() {
  if (std::exchange(phase_, Phase::kOver) == Phase::kOver) return;
  IdleHook::unlink();
  proxy_.link().timers().Clear(opening_timer_);
  if (target_ != nullptr) target_->Leave(*this);
  if (session_ != nullptr) session_->Lose();
  proxy_.CountHeldAnswer(held_, 0);
  proxy_.link().flushes().Forget(*this);
  proxy_.Bury(*this);
}

}  // namespace sluice
