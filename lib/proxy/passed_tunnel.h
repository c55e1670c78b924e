#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/proxy/client_protocol.h"
#include "lib/proxy/held_bytes.h"
#include "lib/proxy/proxy_metrics.h"
#include "lib/proxy/redirect_loops.h"

namespace sluice {

class ClientConnection;
class ProxyLoop;
class ScheduledTunnel;
class Tunnel;

// A client that requested a tunnel by CONNECT and speaks something other than HTTP/2 in the clear: the proxy forwards
// its bytes. A tunnel to a worker takes turns in the schedule of the link (ScheduledTunnel), if the policy has turns.
// There is one for each such connection. Bytes that wait for one end stop the reading of the other end. Each direction
// ends by itself, and a reset of one end is a reset of the other. Used on the link's thread only.
class PassedTunnel final : public ClientProtocol {
 public:
  // kOther: traffic of a local client to a host that is not a worker. It is not restricted. It is counted, because it
  // uses the same port.
  using Kind = TunnelKind;
  // The part of the tunnel that exists before this object.
  struct Beginning {
    std::unique_ptr<Tunnel> dialled;  // it is open; null: the tunnel connects to the target of the connection
    std::string spoken;               // bytes that came from it
    std::string header;               // bytes for it that are no request
    std::string bytes;                // the client's
    std::string pattern;              // of the workers that permits its target; empty for other hosts
    RedirectLoops::Client* redirected = nullptr;  // null: the client was not redirected
  };
  // The connection must outlive it.
  PassedTunnel(ProxyLoop& proxy, ClientConnection& connection, Kind kind, Beginning beginning);
  ~PassedTunnel() override;

  // The kind of a tunnel to a worker, by the current options.
  static Kind KindToWorker(ProxyLoop& proxy);
  // The receive buffer of the connection of such a tunnel, as in Executor::ConnectOptions.
  static int ReceiveBufferBytes(ProxyLoop& proxy, Kind kind);

  // ClientProtocol.
  void OnBytes(absl::string_view bytes) override;
  void OnDrained() override;
  void OnDisconnected(const absl::Status& why) override;
  void OnClientEnded() override;
  // Both reset both ends: what was cut off must not seem complete.
  void Fail(const absl::Status& /*why*/) override { Abort(); }
  void FailStuck(const absl::Status& /*why*/) override { AbortStuck(); }
  // Ends the tunnel if one of its ends reads nothing, or if nothing passes for too long.
  void LookAround(TimePoint now) override;
  void OnEnd() override;

 private:
  enum class Phase {
    kOpen,
    kLeaving,  // the client has gone, and its last bytes leave
    kOver,
  };

  void Schedule(const std::string& pattern);
  void Forward(std::string bytes);
  void Pass(std::string bytes);
  void SetReading();
  void OnTunnelDialled();
  void OnTunnelOpen();
  void OnTunnelBytes(absl::string_view bytes);
  void OnTunnelBacklog(bool backlog);
  void OnTunnelEnded();
  void OnTunnelOver(const absl::Status& why, bool opened);
  void EndSchedule();
  void EndIfOver();
  void Abort();
  void AbortStuck();
  void EndIfLeft();
  void CountHeld();

  ProxyLoop& proxy_;
  ClientConnection& connection_;
  const Kind kind_;
  RedirectLoops::Client* const redirected_;  // as in Beginning
  Phase phase_ = Phase::kOpen;
  bool reported_ = false;  // to the log
  bool counted_ = false;   // as an open tunnel
  bool client_stuck_ = false;
  bool client_ended_ = false;               // it sends no more, and may still receive
  TimePoint last_bytes_;                    // when bytes have last passed
  std::string waiting_;                     // requests that wait for a turn
  HeldBytes::Holder held_;                  // these, and the bytes that the worker has not read
  std::unique_ptr<ScheduledTunnel> turns_;  // null: the tunnel is not scheduled
  std::unique_ptr<Tunnel> tunnel_;
};

}  // namespace sluice
