// What ClientConnection does with CONNECT, and with tunnels that are only passed on.

#include <algorithm>
#include <utility>

#include "lib/proxy/client_connection.h"
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

// The client hears whether there is such a worker before it says more.
void ClientConnection::OnConnectRequest() {
  connect_target_ = opening_.target();
  early_ = opening_.TakeRest();
  phase_ = Phase::kConnecting;
  absl::StatusOr<std::shared_ptr<Target>> target = proxy_.FindTarget(policy(), connect_target_);
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
  IdleHook::unlink();
  tunnel_ = std::make_unique<Tunnel>(
      proxy_.link().executor(), connect_target_,
      kind == TunnelKind::kWorker ? static_cast<int>(proxy_.options().worker_tunnel_receive_bytes) : 0,
      [this, kind](const WorkerAddress& address) {
        return kind == TunnelKind::kWorker ? policy()->CheckAddress(connect_target_, address.text).status()
                                           : policy()->CheckPassed(address.text);
      },
      Tunnel::Owner{
          .on_open =
              [this, kind] {
                if (kind == TunnelKind::kOther) Write(kTunnelIsOpen);
              },
          .on_bytes = [this](absl::string_view bytes) { OnTunnelBytes(bytes); },
          .on_backlog = [this](bool backlog) { OnTunnelBacklog(backlog); },
          .on_over = [this, kind](const absl::Status& why, bool opened) { OnTunnelOver(kind, why, opened); }});
  if (!bytes.empty()) tunnel_->Write(bytes);
}

void ClientConnection::OnTunnelBytes(absl::string_view bytes) {
  if (phase_ != Phase::kTunnel) return;  // nobody is there to read them
  Write(std::string(bytes));
  if (socket_->congested()) tunnel_->SetReading(false);
}

void ClientConnection::OnTunnelBacklog(bool backlog) {
  if (phase_ == Phase::kLeaving) return LeaveTunnel();
  socket_->SetReading(!backlog);
}

void ClientConnection::OnTunnelOver(TunnelKind kind, const absl::Status& why, bool opened) {
  if (phase_ == Phase::kOver) return;  // in the turn that ended it; the proxy may be gone
  if (phase_ == Phase::kLeaving) return End();
  if (!opened && kind == TunnelKind::kOther) return RefuseHttp1(RefusalOf(why));
  phase_ = Phase::kRefused;  // what the other side has said still leaves
  if (socket_->unsent_bytes() == 0) End();
}

// The far side is read meanwhile: with bytes that nobody has read, the kernel would reset the connection at its end,
// and drop what it has not sent.
void ClientConnection::LeaveTunnel() {
  phase_ = Phase::kLeaving;
  tunnel_->SetReading(true);
  if (tunnel_->unsent_bytes() == 0) End();
}

// What waits for the one end stops the other, so either may hold the tunnel for ever.
void ClientConnection::LookAtTunnel(TimePoint now) {
  TimePoint unsent_since = tunnel_->UnsentSince(now);
  if (phase_ == Phase::kTunnel) {
    WatchSocket();
    unsent_since = std::min(unsent_since, unsent_.since());
  }
  if (unsent_since > now - proxy_.options().client_stall_timeout) return;
  proxy_.metrics().CountStuckCall();
  End();
}

void ClientConnection::RefuseHttp1(std::string answer) {
  proxy_.metrics().CountConnection(ProxyConnection::kRefused);
  phase_ = Phase::kRefused;
  Write(std::move(answer));
  if (socket_->unsent_bytes() == 0) End();
}

}  // namespace sluice
