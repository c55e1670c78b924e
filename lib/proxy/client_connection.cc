#include "lib/proxy/client_connection.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/net/host_port.h"
#include "lib/proxy/http2_client.h"
#include "lib/proxy/proxy_header.h"
#include "lib/proxy/proxy_loop.h"

namespace sluice {
namespace {

constexpr char kTunnelIsOpen[] = "HTTP/1.1 200 Connection established\r\n\r\n";
constexpr char kNoWorkerTunnels[] =
    "tunnels.to_workers is off; let the client use plaintext, or TLS to the proxy, and the proxy TLS to the workers";
constexpr char kTooOld[] =
    "the connection is older than max_connection_age, and has not ended within drain_timeout; connect again";

// Returns the endpoint that an IP address with a port names; empty for any other text.
std::optional<TcpEndpoint> TcpEndpointOf(const std::string& text) {
  const absl::StatusOr<HostPort> parsed = ParseHostPort(text);
  if (!parsed.ok()) return std::nullopt;
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(parsed->host, error);
  return error ? std::nullopt : std::optional(TcpEndpoint(address, static_cast<uint16_t>(parsed->port)));
}

// The header for a client's connection. `original`: the address to which a redirected client had connected.
std::string HeaderOf(uint32_t version, const std::optional<TcpSocket>& client, const std::string& original) {
  if (!client.has_value()) return ProxyHeader(version, std::nullopt, std::nullopt);
  return ProxyHeader(version, client->remote, original.empty() ? client->local : TcpEndpointOf(original));
}

bool MayPassToOthers(const ProxyOptions& options, const ClientOrigin& origin) {
  if (!origin.local || !options.pass_tunnels) return false;
  // Rules of this host have led a redirected connection here.
  const bool is_redirected = origin.opening == ClientOrigin::Opening::kRedirected;
  return origin.user.has_value() || is_redirected || options.pass_tunnels_from_loopback;
}

}  // namespace

std::string ClientOrigin::Name() const {
  return user.has_value() ? absl::StrCat("uid ", *user) : peer;
}

ClientConnection::ClientConnection(ProxyLoop& proxy, ClientOrigin origin, const AcceptedSocket& accept)
    : proxy_(proxy),
      origin_(std::move(origin)),
      membership_(proxy, origin_,
                  [this](const absl::Status& why) {
                    // Later: the client that needs the place may be on the stack.
                    proxy_.link().AtEndOfTurn([weak = weak_from_this(), why] {
                      if (const std::shared_ptr<ClientConnection> alive = weak.lock()) alive->Close(why);
                    });
                  }),
      held_([this] { EndStuck(StuckClients(proxy_.held_answers().max_bytes())); }, ClientGroups::kStrangers),
      socket_(accept(*this)) {}

ClientConnection::~ClientConnection() = default;

// --- The opening.

// The kernel identifies clients on Unix sockets. All other clients become known later.
void ClientConnection::Begin(Place place) {
  place_ = place;
  if (const auto age = proxy_.options().max_connection_age; age.count() > 0) {
    age_.Begin(proxy_.link().now(), age, proxy_.link().executor().Random());
  }
  WatchOpening();
  if (origin_.user.has_value()) {
    Join();
  } else {
    membership_.Wait();
  }
}

bool ClientConnection::Join() {
  const bool is_new = membership_.group() == nullptr;
  const absl::Status joined = membership_.Join(*socket_);
  if (joined.ok()) {
    if (!is_new) return true;
    membership_.SetIdle(true);
    proxy_.held_answers().Move(held_, membership_.group()->index(), proxy_.link().now());
    return true;
  }
  proxy_.metrics().CountConnection(ProxyConnection::kRefused);
  Report(ProxyEvent::Kind::kRefused, connect_target_, joined.message());
  End();
  return false;
}

void ClientConnection::WatchOpening() {
  const TimePoint::duration timeout = proxy_.options().opening_timeout;
  proxy_.link().timers().Clear(opening_timer_);
  opening_timer_ = proxy_.link().timers().Set(proxy_.link().now() + timeout, [this, timeout] {
    opening_timer_ = TimerQueue::Id();
    const std::string within =
        absl::StrCat(" within limits.opening_timeout, ", absl::FormatDuration(absl::FromChrono(timeout)));
    if (!connected_) {
      OnHandshakeFailed(
          absl::DeadlineExceededError(absl::StrCat(origin_.peer, " has not completed its handshake", within)));
    }
    if (phase_ == Phase::kConnecting) {
      return RefuseConnect(absl::DeadlineExceededError(absl::StrCat("no connection", within)), "");
    }
    // The client may be a pool that uses its tunnel later, or wait for a server that speaks first.
    if (phase_ == Phase::kInTunnel) return StartTunnel(opening_.TakeAll(), PassedTunnel::KindToWorker(proxy_));
    End();
  });
}

void ClientConnection::OnConnected() {
  connected_ = true;
  if ((origin_.tls || !origin_.asks()) && !Join()) return;
  if (origin_.asks()) return;
  phase_ = Phase::kConnecting;
  connect_target_ = origin_.route;
  if (origin_.opening == ClientOrigin::Opening::kRoute) return OpenTo(origin_.route);
  redirected_.emplace(*origin_.loops, [this] { Reset(); });
  const absl::Status added = redirected_->Add(origin_.peer, origin_.route);
  if (!added.ok()) return RefuseConnect(added, "");
  // In the next turn: if this is a loop, the connection that was dialled for the other side finds it in this turn.
  proxy_.link().executor().Post([this, weak = weak_from_this()] {
    const std::shared_ptr<ClientConnection> alive = weak.lock();
    if (alive != nullptr && phase_ == Phase::kConnecting) OpenTo(origin_.route);
  });
}

void ClientConnection::OnHandshakeFailed(const absl::Status& why) {
  proxy_.metrics().CountConnection(ProxyConnection::kHandshakeFailed);
  Report(ProxyEvent::Kind::kHandshakeFailed, "", why.message());
}

void ClientConnection::OnBytes(absl::string_view bytes) {
  switch (phase_) {
    case Phase::kOpening:
    case Phase::kInTunnel:
      Open(bytes);
      if (phase_ == Phase::kOpening || phase_ == Phase::kInTunnel) membership_.CountOpening(opening_.bytes());
      return;
    case Phase::kOpen:
      return protocol_->OnBytes(opening_.PassOn(bytes));
    case Phase::kConnecting:
      // The client does not wait until its tunnel is open.
      early_.append(bytes.data(), bytes.size());
      if (early_.size() > ClientOpening::kMaxHeadBytes) socket_->SetReading(false);
      return membership_.CountOpening(early_.size());
    case Phase::kDraining:
    case Phase::kOver:
      return;
  }
}

void ClientConnection::Open(absl::string_view bytes) {
  const ClientOpening::Kind kind = opening_.Read(bytes);
  if (std::string reply = opening_.TakeReply(); !reply.empty()) Write(std::move(reply));
  switch (kind) {
    case ClientOpening::Kind::kUnknown:
      return;
    case ClientOpening::Kind::kHttp2:
      return Join() ? StartHttp2(opening_.TakeRest()) : void();
    case ClientOpening::Kind::kConnect:
    case ClientOpening::Kind::kOther:
      if (phase_ == Phase::kInTunnel) return StartTunnel(opening_.TakeAll(), PassedTunnel::KindToWorker(proxy_));
      if (opening_.kind() == ClientOpening::Kind::kConnect) {
        if (!Join()) return;
        socks_ = opening_.socks();
        early_ = opening_.TakeRest();
        return OpenTo(opening_.target());
      }
      proxy_.metrics().CountConnection(ProxyConnection::kRefused);
      Report(ProxyEvent::Kind::kRefused, "", opening_.why());
      return EndWhenDrained(opening_.refusal());
  }
}

// The reply reports whether the target can be reached, before the client sends more.
void ClientConnection::OpenTo(const std::string& target) {
  connect_target_ = target;
  phase_ = Phase::kConnecting;
  WatchOpening();
  const bool only_tunnel = origin_.opening == ClientOrigin::Opening::kRoute || proxy_.policies()->AnyExpectsHeader() ||
                           policy()->workers.AnyCarriesBytes();
  dial_ = std::make_unique<TargetDial>(
      proxy_, std::shared_ptr<const TargetPolicy>(policy(), &policy()->workers), membership_.group(), connect_target_,
      only_tunnel, [this](const absl::Status& reached) { AnswerConnect(reached); },
      [this] {
        if (phase_ == Phase::kInTunnel) StartTunnel(opening_.TakeAll(), PassedTunnel::KindToWorker(proxy_));
      });
}

void ClientConnection::AnswerConnect(const absl::Status& reached) {
  if (phase_ != Phase::kConnecting) return;  // the client has disconnected in the same turn
  const Tunnel* const dialled = dial_->tunnel();
  if (redirected_ && dialled != nullptr) {
    if (const absl::Status added = redirected_->AddDialled(dialled->Tcp()); !added.ok())
      return RefuseConnect(added, "");
  }
  const bool is_route = origin_.opening == ClientOrigin::Opening::kRoute;
  // A worker that expects the header may wait for it before it speaks, and takes no calls: calls have one connection
  // for all clients.
  if (reached.ok() && dialled != nullptr &&
      proxy_.policies()->ExpectsHeader(connect_target_, dialled->address().text)) {
    header_ = HeaderOf(proxy_.options().proxy_protocol_version, socket_->Tcp(), redirected_ ? origin_.route : "");
  }
  const bool only_bytes =
      dialled != nullptr && policy()->workers.CarriesBytes(connect_target_, dialled->address().text);
  if (reached.ok() && !is_route && header_.empty() && !only_bytes) return OpenTunnel();
  socket_->SetReading(true);
  std::string early = std::exchange(early_, {});
  if (reached.ok()) {
    TellTunnelIsOpen();
    return StartTunnel(early, PassedTunnel::KindToWorker(proxy_));
  }
  if (absl::IsPermissionDenied(reached) && !is_route && MayPassToOthers(proxy_.options(), origin_)) {
    return StartTunnel(early, PassedTunnel::Kind::kOther);
  }
  RefuseConnect(reached, std::move(early));
}

void ClientConnection::TellTunnelIsOpen() {
  if (!origin_.asks()) return;
  Write(socks_ ? SocksReply(absl::OkStatus()) : kTunnelIsOpen);
}

void ClientConnection::OpenTunnel() {
  TellTunnelIsOpen();
  phase_ = Phase::kInTunnel;
  opening_ = ClientOpening(/*in_tunnel=*/true);
  WatchOpening();
  socket_->SetReading(true);
  const std::string early = std::exchange(early_, {});
  if (!early.empty()) Open(early);
  if (ended_) OnEnded();
}

void ClientConnection::RefuseConnect(const absl::Status& why, std::string early) {
  const bool unreachable = absl::IsUnavailable(why) || absl::IsDeadlineExceeded(why) || absl::IsNotFound(why);
  proxy_.metrics().CountConnection(unreachable ? ProxyConnection::kUnreachable : ProxyConnection::kRefused);
  std::string text(why.message());
  if (!absl::StrContains(text, connect_target_)) text = absl::StrCat(connect_target_, ": ", text);
  Report(ProxyEvent::Kind::kRefused, connect_target_, text);
  const bool coarse = unreachable && !origin_.local;
  const absl::Status told = coarse ? Unreached(connect_target_) : absl::Status(why.code(), text);
  if (socks_) return EndWhenDrained(SocksReply(coarse ? told : why));
  if (origin_.asks()) return EndWhenDrained(ConnectRefusal(told, proxy_.pseudonym()));
  // Other reasons may pass, so the client must see a connection that failed: it then tries again, or elsewhere.
  const bool is_redirected = origin_.opening == ClientOrigin::Opening::kRedirected;
  if (!is_redirected || !absl::IsPermissionDenied(why)) return ResetWhenDrained();
  denial_ = std::string(why.message());
  if (phase_ == Phase::kOpen) {  // a PassedTunnel sought the target
    membership_.SetIdle(true);
    WatchOpening();
  }
  phase_ = Phase::kConnecting;
  early_ = std::move(early);
  // Later, since a PassedTunnel may be on the stack.
  proxy_.link().AtEndOfTurn([this, weak = weak_from_this()] {
    const std::shared_ptr<ClientConnection> alive = weak.lock();
    if (alive == nullptr || phase_ != Phase::kConnecting) return;
    protocol_.reset();
    OpenTunnel();
  });
}

void ClientConnection::StartHttp2(const std::string& bytes) {
  proxy_.link().timers().Clear(opening_timer_);
  membership_.CountOpening(0);
  if (dial_ != nullptr) dial_->Stop();  // the workers have connections of their own
  protocol_ = Http2Client::Make(proxy_, *this);
  if (protocol_ == nullptr) return End();
  phase_ = Phase::kOpen;
  // A denied client has been counted. Its calls end by the policy, or pass once new options permit the target.
  if (denial_.empty()) {
    proxy_.metrics().CountConnection(connect_target_.empty() ? ProxyConnection::kHttp2 : ProxyConnection::kConnect);
  }
  if (going_away_) protocol_->AnnounceGoAway();
  protocol_->OnBytes(bytes);
  if (ended_ && phase_ == Phase::kOpen) protocol_->OnClientEnded();
}

// The client of a tunnel may only read, and never send a byte.
void ClientConnection::OnEnded() {
  ended_ = true;
  switch (phase_) {
    case Phase::kOpening:
      return End();
    case Phase::kInTunnel:
      return StartTunnel(opening_.TakeAll(), PassedTunnel::KindToWorker(proxy_));
    case Phase::kOpen:
      return protocol_->OnClientEnded();
    case Phase::kConnecting:  // OpenTunnel continues
    case Phase::kDraining:
    case Phase::kOver:
      return;
  }
}

void ClientConnection::StartTunnel(const std::string& bytes, PassedTunnel::Kind kind) {
  // A client that waits after the preface of HTTP/2 has no request yet, as an idle gRPC channel.
  if (opening_.answered_http2() && opening_.kind() == ClientOpening::Kind::kUnknown) return StartHttp2(bytes);
  proxy_.link().timers().Clear(opening_timer_);
  membership_.CountOpening(0);
  if (!denial_.empty()) return EndWhenDrained(TunnelRefusal(bytes, denial_));
  const bool to_worker = kind != PassedTunnel::Kind::kOther;
  const bool is_route = origin_.opening == ClientOrigin::Opening::kRoute;
  if (to_worker && !is_route && !proxy_.options().pass_worker_tunnels) {
    proxy_.metrics().CountConnection(ProxyConnection::kRefused);
    Report(ProxyEvent::Kind::kRefused, connect_target_, kNoWorkerTunnels, ClientOpening::ProtocolOf(bytes));
    return EndWhenDrained(TunnelRefusal(bytes, kNoWorkerTunnels));
  }
  // Clients of other hosts could reach every service of the networks in `workers`. A worker that was not dialled is
  // checked when it is.
  if (to_worker && !is_route && !origin_.local && dial_->tunnel() != nullptr) {
    const std::string& address = dial_->tunnel()->address().text;
    const auto permitted = policy()->workers.CheckAddress(connect_target_, address, /*needs_port=*/true);
    if (!permitted.ok()) {
      const std::string why(permitted.status().message());
      proxy_.metrics().CountConnection(ProxyConnection::kRefused);
      Report(ProxyEvent::Kind::kRefused, connect_target_, why, ClientOpening::ProtocolOf(bytes));
      return EndWhenDrained(TunnelRefusal(bytes, why));
    }
  }
  // A tunnel to another host is counted when it is open. Otherwise it is refused.
  if (to_worker) {
    proxy_.metrics().CountConnection(kind == PassedTunnel::Kind::kScheduled ? ProxyConnection::kScheduledTunnel
                                                                            : ProxyConnection::kWorkerTunnel);
  }
  phase_ = Phase::kOpen;
  if (!origin_.tls) age_ = ConnectionAge();
  membership_.SetIdle(false);
  PassedTunnel::Beginning beginning{.dialled = dial_->TakeTunnel(),
                                    .spoken = dial_->TakeSpoken(),
                                    .header = header_,
                                    .bytes = bytes,
                                    .pattern = dial_->pattern(),
                                    .redirected = redirected_ ? &*redirected_ : nullptr};
  protocol_ = std::make_unique<PassedTunnel>(proxy_, *this, kind, std::move(beginning));
  if (ended_) protocol_->OnClientEnded();
}

// --- What the protocol needs.

void ClientConnection::Report(ProxyEvent::Kind kind, std::string target, absl::string_view why,
                              absl::string_view carries) {
  proxy_.Report({.kind = kind,
                 .client = origin_.Name(),
                 .target = std::move(target),
                 .why = std::string(why),
                 .carries = std::string(carries)});
}

std::string ClientConnection::TargetOf(const ForwardedHead& head, bool& by_authority) const {
  by_authority = origin_.route.empty() && connect_target_.empty() && head.worker.empty();
  if (!origin_.route.empty()) return origin_.route;
  if (!connect_target_.empty()) return connect_target_;
  return head.worker.empty() ? head.authority : head.worker;
}

void ClientConnection::Write(std::string bytes) {
  unsent_.OnWritten(bytes.size());
  socket_->Write(std::move(bytes));
}

TimePoint ClientConnection::WatchSocket() {
  const size_t unsent_bytes = socket_->unsent_bytes();
  proxy_.held_answers().Count(held_, static_cast<int64_t>(unsent_bytes), proxy_.link().now());
  unsent_.Look(unsent_bytes, proxy_.link().now());
  return unsent_.since();
}

void ClientConnection::OnDrained() {
  if (phase_ == Phase::kDraining) return resets_ ? Reset() : End();
  if (phase_ == Phase::kOpen) protocol_->OnDrained();
}

// --- The end.

void ClientConnection::AnnounceGoAway() {
  going_away_ = true;
  if (phase_ == Phase::kOpen) protocol_->AnnounceGoAway();
}

void ClientConnection::GoAway() {
  if (phase_ != Phase::kOpen) return End();
  protocol_->GoAway();
}

void ClientConnection::Close(const absl::Status& why) {
  if (phase_ == Phase::kOpen) protocol_->Fail(why);
  End();
}

void ClientConnection::LookAround(TimePoint now) {
  socket_->CheckPeer([this](const absl::Status& why) {
    if (phase_ == Phase::kOver) return;
    Report(ProxyEvent::Kind::kRefused, connect_target_, why.message());
    Close(absl::UnauthenticatedError(why.message()));
  });
  switch (age_.Look(now, proxy_.options().max_connection_age_grace)) {
    case ConnectionAge::Step::kNone:
      break;
    case ConnectionAge::Step::kAnnounce:
      AnnounceGoAway();
      break;
    case ConnectionAge::Step::kGoAway:
      if (phase_ == Phase::kOpen) GoAway();
      break;
    case ConnectionAge::Step::kEnd:
      Report(ProxyEvent::Kind::kRefused, connect_target_, kTooOld);
      return Close(absl::UnavailableError(kTooOld));
  }
  if (phase_ == Phase::kOpen) return protocol_->LookAround(now);
  if (phase_ != Phase::kDraining) return;
  if (WatchSocket() <= now - proxy_.options().client_stall_timeout) End();
}

// End the connection: a reset of a stream would not leave.
void ClientConnection::EndStuck(const absl::Status& why) {
  if (phase_ == Phase::kOpen) protocol_->FailStuck(why);
  End();
}

void ClientConnection::EndWhenDrained(std::string last_bytes) {
  if (!last_bytes.empty()) Write(std::move(last_bytes));
  phase_ = Phase::kDraining;
  if (socket_->unsent_bytes() == 0) OnDrained();
}

void ClientConnection::ResetWhenDrained() {
  resets_ = true;
  EndWhenDrained();
}

void ClientConnection::Reset() {
  socket_->Reset();
  End();
}

void ClientConnection::OnDisconnected(absl::Status why) {
  if (phase_ == Phase::kOver) return;
  if (!connected_) OnHandshakeFailed(why);
  if (phase_ == Phase::kOpen) return protocol_->OnDisconnected(why);
  End();
}

void ClientConnection::End() {
  if (std::exchange(phase_, Phase::kOver) == Phase::kOver) return;
  membership_.Leave();
  proxy_.link().timers().Clear(opening_timer_);
  if (redirected_) redirected_->Leave();
  if (dial_ != nullptr) dial_->Stop();
  if (protocol_ != nullptr) protocol_->OnEnd();
  proxy_.held_answers().Count(held_, 0, proxy_.link().now());
  proxy_.Bury(*this);
}

}  // namespace sluice
