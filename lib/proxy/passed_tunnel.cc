#include "lib/proxy/passed_tunnel.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/link/link_loop.h"
#include "lib/link/scheduled_tunnel.h"
#include "lib/proxy/client_connection.h"
#include "lib/proxy/proxy_loop.h"
#include "lib/proxy/tunnel.h"

namespace sluice {
namespace {

constexpr char kWorkerUnscheduled[] =
    "the proxy schedules only gRPC in plaintext here; set tunnels.scheduled and the policy grants or rolling, or let "
    "the client use plaintext, or TLS to the proxy, and the proxy TLS to the workers (tls.ca)";
constexpr char kOtherUnscheduled[] =
    "no pattern of workers permits it, so it is not a worker; if it is one, add a pattern for it to workers";

}  // namespace

PassedTunnel::Kind PassedTunnel::KindToWorker(ProxyLoop& proxy) {
  const bool scheduled = proxy.options().schedule_worker_tunnels && ScheduledTunnel::Possible(proxy.link());
  return scheduled ? Kind::kScheduled : Kind::kWorker;
}

int PassedTunnel::ReceiveBufferBytes(ProxyLoop& proxy, Kind kind) {
  if (kind == Kind::kScheduled) return ScheduledTunnel::ReceiveBufferBytes(proxy.link());
  return kind == Kind::kWorker ? static_cast<int>(proxy.options().worker_tunnel_receive_bytes) : 0;
}

PassedTunnel::PassedTunnel(ProxyLoop& proxy, ClientConnection& connection, Kind kind, Beginning beginning)
    : proxy_(proxy),
      connection_(connection),
      kind_(kind),
      redirected_(beginning.redirected),
      last_bytes_(proxy.link().now()),
      held_([this] { AbortStuck(); }, connection.membership().group()->index()),
      tunnel_(std::move(beginning.dialled)) {
  Tunnel::Owner owner{.on_open = [this] { OnTunnelDialled(); },
                      .on_bytes = [this](absl::string_view received) { OnTunnelBytes(received); },
                      .on_backlog = [this](bool backlog) { OnTunnelBacklog(backlog); },
                      .on_ended = [this] { OnTunnelEnded(); },
                      .on_over = [this](const absl::Status& why, bool opened) { OnTunnelOver(why, opened); }};
  if (kind_ == Kind::kScheduled) Schedule(beginning.pattern);
  if (tunnel_ == nullptr) {
    tunnel_ = std::make_unique<Tunnel>(proxy_.link(), ReceiveBufferBytes(proxy_, kind_), std::move(owner));
    const bool needs_port = !connection_.membership().is_local();
    tunnel_->LookUp(connection_.connect_target(), [this, needs_port](const WorkerAddress& address) {
      const TargetPolicy& policy = connection_.policy()->workers;
      return kind_ == Kind::kOther
                 ? policy.CheckPassed(address.text)
                 : policy.CheckAddress(connection_.connect_target(), address.text, needs_port).status();
    });
  } else {
    tunnel_->SetOwner(std::move(owner));
    tunnel_->SetReading(true);
    OnTunnelOpen();
    const std::string received = beginning.spoken + tunnel_->TakeReceived();
    if (!received.empty()) OnTunnelBytes(received);
  }
  if (!beginning.header.empty()) tunnel_->Write(std::move(beginning.header));
  if (!beginning.bytes.empty()) Forward(std::move(beginning.bytes));
  CountHeld();
  if (tunnel_->ended()) OnTunnelEnded();
}

PassedTunnel::~PassedTunnel() = default;

void PassedTunnel::Schedule(const std::string& pattern) {
  const auto on_turn = [this] {
    Pass({});
    SetReading();
    CountHeld();
  };
  // Close it later, since the tunnel is on the stack.
  const auto on_refused = [this](const absl::Status& why) {
    connection_.Report(ProxyEvent::Kind::kRefused, connection_.connect_target(),
                       absl::StrCat("the schedule refuses a turn: ", why.message()));
    proxy_.link().AtEndOfTurn([connection = connection_.weak_from_this(), why] {
      if (const std::shared_ptr<ClientConnection> alive = connection.lock()) alive->Close(why);
    });
  };
  const std::string& own = connection_.policy()->traffic_class;
  const auto traffic_class = TrafficClassIndex(proxy_.link().schedule().options().classes,
                                               own.empty() ? proxy_.options().worker_tunnel_class : own);
  turns_ = std::make_unique<ScheduledTunnel>(
      proxy_.link(), proxy_.link().metrics().Tunnels(pattern), *traffic_class,
      ScheduledTunnel::Owner{.on_turn = on_turn,
                             .tcp = [this] { return tunnel_->Tcp(); },
                             .set_window = [this](int bytes) { tunnel_->SetReceiveWindow(bytes); },
                             .on_refused = on_refused});
}

// Both directions count within the turn, so that the bounds hold while bytes come.
void PassedTunnel::CountHeld() {
  if (phase_ == Phase::kOver) return;
  const size_t bytes = waiting_.size() + tunnel_->unsent_bytes();
  proxy_.held_requests().Count(held_, static_cast<int64_t>(bytes), proxy_.link().now());
  if (phase_ == Phase::kOpen) connection_.WatchSocket();
}

// Count it here: the proxy may be destroyed in the turn that ends the connection, before this object is.
void PassedTunnel::OnEnd() {
  phase_ = Phase::kOver;
  proxy_.held_requests().Count(held_, 0, proxy_.link().now());
  if (turns_ != nullptr) turns_->Stop();
  if (std::exchange(counted_, false)) proxy_.metrics().CountTunnel(kind_, -1);
}

// The bytes of a loop would come back to the proxy.
void PassedTunnel::OnTunnelDialled() {
  if (phase_ == Phase::kOver) return;
  const absl::Status added = redirected_ != nullptr ? redirected_->AddDialled(tunnel_->Tcp()) : absl::OkStatus();
  if (added.ok()) return OnTunnelOpen();
  tunnel_->TakeEarly();
  connection_.RefuseConnect(added, "");
}

void PassedTunnel::OnTunnelOpen() {
  counted_ = true;
  proxy_.metrics().CountTunnel(kind_, 1);
  if (kind_ != Kind::kOther) return;
  proxy_.metrics().CountConnection(ProxyConnection::kOtherTunnel);
  connection_.TellTunnelIsOpen();
}

void PassedTunnel::OnBytes(absl::string_view bytes) {
  if (phase_ != Phase::kOpen) return;
  Forward(std::string(bytes));
  CountHeld();
}

// The first bytes show the protocol.
void PassedTunnel::Forward(std::string bytes) {
  last_bytes_ = proxy_.link().now();
  if (!std::exchange(reported_, true)) {
    const bool to_worker = kind_ == Kind::kWorker;
    if (kind_ != Kind::kScheduled)
      connection_.Report(to_worker ? ProxyEvent::Kind::kWorkerTunnel : ProxyEvent::Kind::kOtherTunnel,
                         connection_.connect_target(), to_worker ? kWorkerUnscheduled : kOtherUnscheduled,
                         ClientOpening::ProtocolOf(bytes));
  }
  if (turns_ != nullptr) turns_->OnRequest(bytes);
  if (turns_ == nullptr || turns_->passes_requests()) return Pass(std::move(bytes));
  waiting_.append(bytes);
  if (waiting_.size() > StreamSocket::kMaxBacklogBytes) connection_.socket().SetReading(false);
}

// Writes what waited before it, too.
void PassedTunnel::Pass(std::string bytes) {
  if (waiting_.size() > StreamSocket::kMaxBacklogBytes) connection_.socket().SetReading(true);
  if (!waiting_.empty()) tunnel_->Write(std::exchange(waiting_, {}));
  if (!bytes.empty()) tunnel_->Write(std::move(bytes));
  if (client_ended_) tunnel_->EndWrites();
}

void PassedTunnel::SetReading() {
  tunnel_->SetReading(!client_stuck_ && (turns_ == nullptr || turns_->reads()));
}

void PassedTunnel::OnDrained() {
  if (phase_ != Phase::kOpen) return;
  CountHeld();
  if (std::exchange(client_stuck_, false)) {
    if (turns_ != nullptr) turns_->OnClientStuck(false);
    SetReading();
  }
  EndIfOver();
}

void PassedTunnel::OnTunnelBytes(absl::string_view bytes) {
  if (phase_ == Phase::kOver) return;
  proxy_.metrics().CountTunnelBytes(kind_, bytes.size());
  if (phase_ != Phase::kOpen) return;  // the client has disconnected
  last_bytes_ = proxy_.link().now();
  connection_.Write(std::string(bytes));
  if (turns_ != nullptr) turns_->OnResponse(bytes);
  if (connection_.socket().congested() && !std::exchange(client_stuck_, true) && turns_ != nullptr) {
    turns_->OnClientStuck(true);
  }
  SetReading();
  CountHeld();
}

void PassedTunnel::OnTunnelBacklog(bool backlog) {
  CountHeld();
  if (phase_ == Phase::kLeaving) return EndIfLeft();
  connection_.socket().SetReading(!backlog);
  if (!backlog) EndIfOver();
}

// All of the last response has come.
void PassedTunnel::OnTunnelEnded() {
  if (phase_ != Phase::kOpen) return;
  if (turns_ != nullptr) turns_->OnWorkerEnded();
  EndSchedule();
  connection_.socket().EndWrites();
  EndIfOver();
}

void PassedTunnel::OnClientEnded() {
  client_ended_ = true;
  if (waiting_.empty()) tunnel_->EndWrites();
  EndIfOver();
}

// Passes what waits, now and later.
void PassedTunnel::EndSchedule() {
  if (turns_ != nullptr) {
    turns_->Stop();
    proxy_.link().AtEndOfTurn([over = std::shared_ptr<ScheduledTunnel>(std::move(turns_))] {});
  }
  Pass({});
}

void PassedTunnel::EndIfOver() {
  const bool over = client_ended_ && tunnel_->ended() && waiting_.empty();
  if (over && tunnel_->unsent_bytes() == 0 && connection_.socket().unsent_bytes() == 0) connection_.End();
}

void PassedTunnel::OnTunnelOver(const absl::Status& why, bool opened) {
  if (phase_ == Phase::kOver) return;  // in the turn that ended the connection; the proxy may have been destroyed
  if (phase_ == Phase::kLeaving) return connection_.End();
  phase_ = Phase::kOver;
  if (!opened && kind_ == Kind::kOther) return connection_.RefuseConnect(why, tunnel_->TakeEarly());
  // First send the bytes that the other side has sent. If it has ended properly before, it only receives no more.
  if (why.ok() || tunnel_->ended()) return connection_.EndWhenDrained();
  connection_.ResetWhenDrained();
}

// Keep reading the far side: if unread bytes remain when a socket closes, the kernel resets the connection and drops
// the bytes that it has not sent. A client that leaves before its CONNECT is answered has no last bytes.
void PassedTunnel::OnDisconnected(const absl::Status& why) {
  if (kind_ == Kind::kOther && !tunnel_->open()) return connection_.End();
  if (!why.ok() && !client_ended_) return Abort();
  client_ended_ = true;
  phase_ = Phase::kLeaving;
  EndIfLeft();
}

void PassedTunnel::EndIfLeft() {
  EndSchedule();
  tunnel_->SetReading(true);
  if (tunnel_->unsent_bytes() == 0) connection_.End();
}

void PassedTunnel::AbortStuck() {
  proxy_.metrics().CountStuckCall();
  Abort();
}

void PassedTunnel::Abort() {
  tunnel_->Reset();
  connection_.Reset();
}

// A client that reads nothing may stop for as long as the options permit, and so may a worker: their kernels show that
// they exist. After the client has gone, a worker that reads nothing would hold the tunnel forever. An end that has
// sent all may be gone, too, and nothing shows it while nothing is sent to it.
void PassedTunnel::LookAround(TimePoint now) {
  CountHeld();
  const ProxyOptions& options = proxy_.options();
  const bool open = phase_ == Phase::kOpen;
  const TimePoint worker_since = tunnel_->UnsentSince(now);
  const TimePoint unsent_since = open ? std::min(worker_since, connection_.WatchSocket()) : worker_since;
  const auto stall_timeout = open ? options.tunnel_stall_timeout : options.client_stall_timeout;
  if (stall_timeout.count() > 0 && unsent_since <= now - stall_timeout) return AbortStuck();
  const bool half_closed = client_ended_ || tunnel_->ended();
  const auto timeout = half_closed ? options.half_closed_timeout : options.tunnel_idle_timeout;
  const TimePoint passed = unsent_since == TimePoint::max() ? last_bytes_ : std::max(last_bytes_, unsent_since);
  if (waiting_.empty() && timeout.count() > 0 && passed <= now - timeout) Abort();
}

}  // namespace sluice
