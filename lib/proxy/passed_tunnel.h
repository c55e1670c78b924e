#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/proxy/client_protocol.h"
#include "lib/proxy/proxy_metrics.h"

namespace sluice {

class ClientConnection;
class ProxyLoop;
class Tunnel;

inline constexpr char kTunnelIsOpen[] = "HTTP/1.1 200 Connection established\r\n\r\n";

// A client that requested a tunnel by CONNECT and speaks something other than HTTP/2 in the clear: the proxy forwards
// its bytes, and schedules none of them. There is one for each such connection. Bytes that wait for one end stop the
// reading of the other end. Used on the link's thread only.
class PassedTunnel final : public ClientProtocol {
 public:
  // kOther: traffic of a local client to a host that is not a worker. It is not restricted. It is counted, because it
  // uses the same port.
  using Kind = TunnelKind;
  // Sends `bytes` first. `dialled` is open; if it is null, connects to the target of the connection. The connection
  // must outlive it.
  PassedTunnel(ProxyLoop& proxy, ClientConnection& connection, Kind kind, std::unique_ptr<Tunnel> dialled,
               const std::string& bytes);
  ~PassedTunnel() override;

  // ClientProtocol.
  void OnBytes(absl::string_view bytes) override;
  void OnDrained() override;
  void OnDisconnected() override;
  // Ends the tunnel if one of its ends reads nothing.
  void LookAround(TimePoint now) override;
  void OnEnd() override;

 private:
  enum class Phase {
    kOpen,
    kLeaving,  // the client has gone, and its last bytes leave
    kOver,
  };

  void Forward(std::string bytes);
  void OnTunnelOpen();
  void OnTunnelBytes(absl::string_view bytes);
  void OnTunnelBacklog(bool backlog);
  void OnTunnelOver(const absl::Status& why, bool opened);
  void EndIfLeft();

  ProxyLoop& proxy_;
  ClientConnection& connection_;
  const Kind kind_;
  Phase phase_ = Phase::kOpen;
  bool reported_ = false;  // to the log
  bool counted_ = false;   // as an open tunnel
  std::unique_ptr<Tunnel> tunnel_;
};

}  // namespace sluice
