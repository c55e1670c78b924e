#include "lib/proxy/client_connection.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/proxy/proxy_core.h"
#include "lib/proxy/tunnel.h"

namespace sluice {
namespace {

constexpr char kTunnelIsOpen[] = "HTTP/1.1 200 Connection established\r\n\r\n";

std::string RefusalOf(const absl::Status& why) {
  const int status = absl::IsPermissionDenied(why) ? 403 : absl::IsInvalidArgument(why) ? 400 : 502;
  return Http1Refusal(status, why.message());
}

}  // namespace

ClientConnection::ClientConnection(ProxyCore& proxy, ClientOrigin origin, const AcceptedSocket& accept)
    : proxy_(proxy), origin_(std::move(origin)), socket_(accept(*this)) {
  opening_timer_ = proxy_.link().timers().Set(proxy_.link().now() + proxy_.options().opening_timeout,
                                              [this] { OnOpeningTimeout(); });
}

ClientConnection::~ClientConnection() = default;

// --- How it begins.

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
      // A client that does not wait for its tunnel.
      if (early_.size() + bytes.size() > ClientOpening::kMaxHeadBytes) return End();
      early_.append(bytes.data(), bytes.size());
      return;
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

// The client hears whether there is such a worker before it says more.
void ClientConnection::OnConnectRequest() {
  connect_target_ = opening_.target();
  early_ = opening_.TakeRest();
  phase_ = Phase::kConnecting;
  absl::StatusOr<std::shared_ptr<Target>> target = proxy_.FindTarget(connect_target_);
  if (!target.ok()) return AnswerConnect(target.status());
  target_ = *std::move(target);
  if (target_->known()) return OnTargetKnown();
  target_->Wait(*this);
}

void ClientConnection::OnTargetKnown() {
  if (phase_ != Phase::kConnecting) return;  // the client has gone in the same turn
  AnswerConnect(target_->Check());
}

void ClientConnection::AnswerConnect(const absl::Status& worker) {
  if (absl::IsPermissionDenied(worker) && origin_.local && proxy_.options().pass_tunnels) {
    return StartTunnel(std::exchange(early_, {}), TunnelKind::kOther);
  }
  if (!worker.ok()) return RefuseHttp1(RefusalOf(worker));
  socket_->Write(kTunnelIsOpen);
  phase_ = Phase::kInTunnel;
  opening_ = ClientOpening();
  const std::string early = std::exchange(early_, {});
  if (!early.empty()) Open(early);
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

// What a local client has to say to others is none of our business, but it comes through the same port; it is counted.
void ClientConnection::StartTunnel(const std::string& bytes, TunnelKind kind) {
  proxy_.link().timers().Clear(opening_timer_);
  if (kind == TunnelKind::kWorker && !proxy_.options().pass_worker_tunnels) {
    proxy_.metrics().CountConnection(ProxyConnection::kRefused);
    return End();
  }
  proxy_.metrics().CountConnection(kind == TunnelKind::kWorker ? ProxyConnection::kWorkerTunnel
                                                               : ProxyConnection::kOtherTunnel);
  phase_ = Phase::kTunnel;
  tunnel_ = std::make_unique<Tunnel>(
      proxy_.link().executor(), connect_target_,
      kind == TunnelKind::kWorker ? static_cast<int>(proxy_.options().worker_tunnel_receive_bytes) : 0,
      [this, kind](const WorkerAddress& address) {
        return kind == TunnelKind::kWorker ? proxy_.policy().CheckAddress(connect_target_, address.text).status()
                                           : proxy_.policy().CheckPassed(address.text);
      },
      Tunnel::Owner{.on_open =
                        [this, kind] {
                          if (kind == TunnelKind::kOther) Write(kTunnelIsOpen);
                        },
                    .on_bytes =
                        [this](absl::string_view bytes) {
                          Write(std::string(bytes));
                          if (socket_->congested()) tunnel_->SetReading(false);
                        },
                    .on_backlog = [this](bool backlog) { socket_->SetReading(!backlog); },
                    .on_over =
                        [this, kind](const absl::Status& why, bool opened) {
                          if (phase_ == Phase::kOver) return;  // in the turn that ended it; the proxy may be gone
                          if (!opened && kind == TunnelKind::kOther) return RefuseHttp1(RefusalOf(why));
                          phase_ = Phase::kRefused;  // what the other side has said still leaves
                          if (socket_->unsent_bytes() == 0) End();
                        }});
  if (!bytes.empty()) tunnel_->Write(bytes);
}

void ClientConnection::RefuseHttp1(std::string answer) {
  proxy_.metrics().CountConnection(ProxyConnection::kRefused);
  phase_ = Phase::kRefused;
  Write(std::move(answer));
  if (socket_->unsent_bytes() == 0) End();
}

// --- HTTP/2.

void ClientConnection::Receive(absl::string_view bytes) {
  const absl::Status received = session_->Receive(bytes);
  if (phase_ == Phase::kOver) return;
  FlushLater();
  if (received.ok()) return EndIfDone();
  Flush();  // a GOAWAY that says why
  End();
}

StreamEvents* ClientConnection::OnStream(int32_t stream) {
  if (!proxy_.MayTakeCall()) return nullptr;
  auto call = std::make_shared<ProxiedCall>(proxy_, *this, stream);
  return calls_.emplace(stream, std::move(call)).first->second.get();
}

std::string ClientConnection::TargetOf(const ForwardedHead& head) const {
  if (!origin_.route.empty()) return origin_.route;
  if (!connect_target_.empty()) return connect_target_;
  return head.worker.empty() ? head.authority : head.worker;
}

void ClientConnection::SendHeaders(const ProxiedCall& call, const HeaderList& headers, bool end_stream) {
  session_->SendHeaders(call.stream(), headers, end_stream);
  FlushLater();
}

void ClientConnection::SendData(const ProxiedCall& call, std::string bytes, bool end_stream) {
  // Whoever asked for the bytes has seen to it that they are not too many.
  if (!session_->SendData(call.stream(), std::move(bytes), end_stream).ok()) {
    return Reset(call, Http2Error::kInternalError);
  }
  fed_.insert(call.stream());
  FlushLater();
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
  return static_cast<int64_t>(session_->unsent_bytes(call.stream()));
}

void ClientConnection::Forget(const ProxiedCall& call) {
  calls_.erase(call.stream());
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
  if (!output.empty()) Write(std::move(output));
  WatchSocket();
  // The client gets no more, and is not read from: whoever does not read answers must not ask for more of them.
  if (socket_->congested()) {
    backlog_ = true;
    socket_->SetReading(false);
  }
  for (const int32_t stream : std::exchange(ending_, {})) {
    if (session_->unsent_bytes(stream) > 0) {
      ending_.push_back(stream);
    } else if (calls_.contains(stream)) {
      session_->Reset(stream, Http2Error::kNoError);
      FlushLater();
    }
  }
  TellTaken();
}

void ClientConnection::Write(std::string bytes) {
  written_bytes_ += bytes.size();
  socket_->Write(std::move(bytes));
}

void ClientConnection::WatchSocket() {
  const size_t unsent_bytes = socket_->unsent_bytes();
  const bool taken = std::exchange(taken_bytes_, written_bytes_ - unsent_bytes) != taken_bytes_;
  if (unsent_bytes == 0) {
    unsent_since_ = TimePoint::max();
  } else if (taken || unsent_since_ == TimePoint::max()) {
    unsent_since_ = proxy_.link().now();
  }
}

// The calls may ask for more of their answers, and end.
void ClientConnection::TellTaken() {
  for (const int32_t stream : std::exchange(fed_, {})) {
    const auto found = calls_.find(stream);
    if (found == calls_.end()) continue;
    if (session_->unsent_bytes(stream) > 0) fed_.insert(stream);
    const std::shared_ptr<ProxiedCall> call = found->second;
    call->OnClientTook();
  }
}

void ClientConnection::OnDrained() {
  if (phase_ == Phase::kRefused) return End();
  if (phase_ == Phase::kTunnel) return tunnel_->SetReading(true);
  if (phase_ != Phase::kHttp2) return;
  unsent_since_ = TimePoint::max();
  if (std::exchange(backlog_, false)) socket_->SetReading(true);
  FlushLater();
  EndIfDone();
}

// --- How it ends.

void ClientConnection::AnnounceGoAway() {
  going_away_ = true;
  if (session_ == nullptr) return;
  session_->AnnounceGoAway();
  FlushLater();
}

void ClientConnection::GoAway() {
  if (phase_ != Phase::kHttp2) return phase_ == Phase::kTunnel ? void() : End();
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
  if (phase_ != Phase::kHttp2 && phase_ != Phase::kRefused) return;
  WatchSocket();
  const std::chrono::nanoseconds timeout = proxy_.options().client_stall_timeout;
  const bool all = unsent_since_ <= now - timeout;
  const auto calls = calls_;
  for (const auto& [stream, call] : calls) {
    if (all || call->stuck_since() <= now - timeout) {
      proxy_.metrics().CountStuckCall();
      call->Fail(absl::ResourceExhaustedError(
          absl::StrCat("the client took nothing of the answer for ", absl::FormatDuration(absl::FromChrono(timeout)))));
      session_->Reset(stream, Http2Error::kEnhanceYourCalm);
      FlushLater();
    } else if (call->deadline() <= now) {
      call->Fail(absl::DeadlineExceededError("the deadline passed, and the client has not ended the call"));
    }
  }
  if (all) End();  // a reset of a stream would not leave
}

// After a GOAWAY, when the last call has ended and the client knows it.
void ClientConnection::EndIfDone() {
  if (phase_ != Phase::kHttp2 || !session_->going_away() || !calls_.empty()) return;
  proxy_.link().AtEndOfTurn([weak = weak_from_this()] {
    const std::shared_ptr<ClientConnection> self = weak.lock();
    if (self == nullptr || self->phase_ != Phase::kHttp2 || !self->calls_.empty()) return;
    self->Flush();
    if (self->socket_->unsent_bytes() == 0) self->End();  // else when the client has read it: OnDrained
  });
}

void ClientConnection::OnDisconnected(absl::Status why) {
  if (phase_ == Phase::kOver) return;
  if (!connected_) proxy_.OnHandshakeFailed(why);
  End();
}

void ClientConnection::End() {
  if (std::exchange(phase_, Phase::kOver) == Phase::kOver) return;
  proxy_.link().timers().Clear(opening_timer_);
  if (target_ != nullptr) target_->Leave(*this);
  if (session_ != nullptr) session_->Lose();
  proxy_.link().flushes().Forget(*this);
  proxy_.Bury(*this);
}

}  // namespace sluice
