// The parts of ClientConnection for CONNECT, and for tunnels that only forward bytes.

#include <algorithm>
#include <utility>

#include "lib/proxy/client_connection.h"
#include "lib/proxy/proxy_loop.h"
#include "lib/proxy/tunnel.h"

namespace sluice {
namespace {

constexpr char kTunnelIsOpen[] = "HTTP/1.1 200 Connection established\r\n\r\n";

std::string RefusalOf(const absl::Status& why) {
  const int status = absl::IsPermissionDenied(why) ? 403 : absl::IsInvalidArgument(why) ? 400 : 502;
  return Http1Refusal(status, why.message());
}

}  // namespace

// Looks up the worker before the reply: the reply reports whether the worker exists before the client sends more.
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
  if (phase_ != Phase::kConnecting) return;  // the client has disconnected in the same turn
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

// Traffic of a local client to other hosts is not restricted. It is counted, because it uses the same port.
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
  if (phase_ != Phase::kTunnel) return;  // the client has disconnected
  Write(std::string(bytes));
  if (socket_->congested()) tunnel_->SetReading(false);
}

void ClientConnection::OnTunnelBacklog(bool backlog) {
  if (phase_ == Phase::kLeaving) return LeaveTunnel();
  socket_->SetReading(!backlog);
}

void ClientConnection::OnTunnelOver(TunnelKind kind, const absl::Status& why, bool opened) {
  if (phase_ == Phase::kOver) return;  // in the turn that ended the connection; the proxy may have been destroyed
  if (phase_ == Phase::kLeaving) return End();
  if (!opened && kind == TunnelKind::kOther) return RefuseHttp1(RefusalOf(why));
  phase_ = Phase::kRefused;  // first send the bytes that the other side has sent
  if (socket_->unsent_bytes() == 0) End();
}

// Keep reading the far side: if unread bytes remain when a socket closes, the kernel resets the connection and drops
// the bytes that it has not sent.
void ClientConnection::LeaveTunnel() {
  phase_ = Phase::kLeaving;
  tunnel_->SetReading(true);
  if (tunnel_->unsent_bytes() == 0) End();
}

// Bytes that wait for one end stop the reading of the other end. Therefore either end may hold the tunnel forever.
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
