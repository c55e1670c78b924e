#include "lib/proxy/passed_tunnel.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "lib/link/link_loop.h"
#include "lib/link/scheduled_tunnel.h"
#include "lib/proxy/client_connection.h"
#include "lib/proxy/proxy_loop.h"
#include "lib/proxy/tunnel.h"

namespace sluice {
namespace {

constexpr char kWorkerUnscheduled[] =
    "the proxy schedules only plaintext HTTP/2 here; set tunnels.scheduled and the policy grants or rolling, or let "
    "the "
    "client use plaintext, or TLS to the proxy, and the proxy TLS to the workers (tls.ca)";
constexpr char kOtherUnscheduled[] =
    "no pattern of workers permits it, so it is not a worker; if it is one, add a pattern for it to workers";

constexpr char kTlsRecord = 0x16;  // the first byte of a TLS connection (RFC 8446, section 5.1)
// A TLS record of HTTP/2's PING takes 39 bytes, and of two WINDOW_UPDATEs 48. A request takes more.
constexpr size_t kMostControlBytes = 48;

}  // namespace

PassedTunnel::Kind PassedTunnel::KindToWorker(ProxyLoop& proxy) {
  const bool scheduled = proxy.options().schedule_worker_tunnels && ScheduledTunnel::Possible(proxy.link());
  return scheduled ? Kind::kScheduled : Kind::kWorker;
}

int PassedTunnel::ReceiveBufferBytes(ProxyLoop& proxy, Kind kind) {
  if (kind == Kind::kScheduled) return ScheduledTunnel::ReceiveBufferBytes(proxy.link());
  return kind == Kind::kWorker ? static_cast<int>(proxy.options().worker_tunnel_receive_bytes) : 0;
}

PassedTunnel::PassedTunnel(ProxyLoop& proxy, ClientConnection& connection, Kind kind, std::unique_ptr<Tunnel> dialled,
                           const std::string& spoken, const std::string& bytes)
    : proxy_(proxy), connection_(connection), kind_(kind), tunnel_(std::move(dialled)) {
  Tunnel::Owner owner{.on_open = [this] { OnTunnelOpen(); },
                      .on_bytes = [this](absl::string_view received) { OnTunnelBytes(received); },
                      .on_backlog = [this](bool backlog) { OnTunnelBacklog(backlog); },
                      .on_over = [this](const absl::Status& why, bool opened) { OnTunnelOver(why, opened); }};
  if (kind_ == Kind::kScheduled) Schedule();
  if (tunnel_ == nullptr) {
    tunnel_ = std::make_unique<Tunnel>(proxy_.link(), ReceiveBufferBytes(proxy_, kind_), std::move(owner));
    tunnel_->LookUp(connection_.connect_target(), [this](const WorkerAddress& address) {
      const TargetPolicy& policy = *connection_.policy();
      return kind_ == Kind::kOther ? policy.CheckPassed(address.text)
                                   : policy.CheckAddress(connection_.connect_target(), address.text).status();
    });
  } else {
    tunnel_->SetOwner(std::move(owner));
    tunnel_->SetReading(true);
    OnTunnelOpen();
    const std::string received = spoken + tunnel_->TakeReceived();
    if (!received.empty()) OnTunnelBytes(received);
  }
  if (!bytes.empty()) Forward(bytes);
}

PassedTunnel::~PassedTunnel() = default;

void PassedTunnel::Schedule() {
  const auto on_turn = [this] {
    Pass({});
    SetReading();
  };
  const auto traffic_class =
      TrafficClassIndex(proxy_.link().schedule().options().classes, proxy_.options().worker_tunnel_class);
  turns_ = std::make_unique<ScheduledTunnel>(
      proxy_.link(), *traffic_class,
      ScheduledTunnel::Owner{.on_turn = on_turn,
                             .tcp = [this] { return tunnel_->Tcp(); },
                             .set_window = [this](int bytes) { tunnel_->SetReceiveWindow(bytes); }});
}

// Count it here: the proxy may be destroyed in the turn that ends the connection, before this object is.
void PassedTunnel::OnEnd() {
  phase_ = Phase::kOver;
  if (turns_ != nullptr) turns_->Stop();
  if (std::exchange(counted_, false)) proxy_.metrics().CountTunnel(kind_, -1);
}

void PassedTunnel::OnTunnelOpen() {
  if (phase_ == Phase::kOver) return;
  counted_ = true;
  proxy_.metrics().CountTunnel(kind_, 1);
  if (kind_ != Kind::kOther) return;
  proxy_.metrics().CountConnection(ProxyConnection::kOtherTunnel);
  connection_.TellTunnelIsOpen();
}

void PassedTunnel::OnBytes(absl::string_view bytes) {
  if (phase_ == Phase::kOpen) Forward(std::string(bytes));
}

// The first bytes show the protocol.
void PassedTunnel::Forward(std::string bytes) {
  if (!std::exchange(reported_, true)) {
    const bool to_worker = kind_ == Kind::kWorker;
    tls_ = bytes[0] == kTlsRecord;
    if (kind_ != Kind::kScheduled)
      connection_.Report(to_worker ? ProxyEvent::Kind::kWorkerTunnel : ProxyEvent::Kind::kOtherTunnel,
                         connection_.connect_target(), to_worker ? kWorkerUnscheduled : kOtherUnscheduled,
                         ClientOpening::ProtocolOf(bytes));
  }
  if (turns_ != nullptr) turns_->OnRequest(static_cast<int64_t>(bytes.size()), !IsControl(bytes.size()));
  if (turns_ == nullptr || turns_->passes_requests()) return Pass(std::move(bytes));
  waiting_.append(bytes);
  if (waiting_.size() > StreamSocket::kMaxBacklogBytes) connection_.socket().SetReading(false);
}

// Writes what waited before it, too.
void PassedTunnel::Pass(std::string bytes) {
  if (waiting_.size() > StreamSocket::kMaxBacklogBytes) connection_.socket().SetReading(true);
  if (!waiting_.empty()) tunnel_->Write(std::exchange(waiting_, {}));
  if (!bytes.empty()) tunnel_->Write(std::move(bytes));
}

bool PassedTunnel::IsControl(size_t bytes) const {
  return tls_ && bytes <= kMostControlBytes;
}

void PassedTunnel::SetReading() {
  tunnel_->SetReading(!client_stuck_ && (turns_ == nullptr || turns_->reads()));
}

void PassedTunnel::OnDrained() {
  if (phase_ != Phase::kOpen || !std::exchange(client_stuck_, false)) return;
  if (turns_ != nullptr) turns_->OnClientStuck(false);
  SetReading();
}

void PassedTunnel::OnTunnelBytes(absl::string_view bytes) {
  if (phase_ == Phase::kOver) return;
  proxy_.metrics().CountTunnelBytes(kind_, bytes.size());
  if (phase_ != Phase::kOpen) return;  // the client has disconnected
  connection_.Write(std::string(bytes));
  if (turns_ != nullptr) turns_->OnResponse(static_cast<int64_t>(bytes.size()), !IsControl(bytes.size()));
  if (connection_.socket().congested() && !std::exchange(client_stuck_, true) && turns_ != nullptr) {
    turns_->OnClientStuck(true);
  }
  SetReading();
}

void PassedTunnel::OnTunnelBacklog(bool backlog) {
  if (phase_ == Phase::kLeaving) return EndIfLeft();
  connection_.socket().SetReading(!backlog);
}

void PassedTunnel::OnTunnelOver(const absl::Status& why, bool opened) {
  if (phase_ == Phase::kOver) return;  // in the turn that ended the connection; the proxy may have been destroyed
  if (phase_ == Phase::kLeaving) return connection_.End();
  phase_ = Phase::kOver;
  if (!opened && kind_ == Kind::kOther) return connection_.RefuseConnect(why, tunnel_->TakeEarly());
  connection_.EndWhenDrained();  // first send the bytes that the other side has sent
}

// Keep reading the far side: if unread bytes remain when a socket closes, the kernel resets the connection and drops
// the bytes that it has not sent. A client that leaves before its CONNECT is answered has no last bytes.
void PassedTunnel::OnDisconnected() {
  if (kind_ == Kind::kOther && !tunnel_->open()) return connection_.End();
  phase_ = Phase::kLeaving;
  EndIfLeft();
}

void PassedTunnel::EndIfLeft() {
  if (turns_ != nullptr) turns_->Stop();
  Pass({});
  tunnel_->SetReading(true);
  if (tunnel_->unsent_bytes() == 0) connection_.End();
}

// Either end may hold the tunnel forever.
void PassedTunnel::LookAround(TimePoint now) {
  TimePoint unsent_since = tunnel_->UnsentSince(now);
  if (phase_ == Phase::kOpen) {
    connection_.WatchSocket();
    unsent_since = std::min(unsent_since, connection_.UnsentSince());
  }
  if (unsent_since > now - proxy_.options().client_stall_timeout) return;
  proxy_.metrics().CountStuckCall();
  connection_.End();
}

}  // namespace sluice
