#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/net/executor.h"
#include "lib/net/timer_queue.h"
#include "lib/proxy/client_membership.h"
#include "lib/proxy/client_opening.h"
#include "lib/proxy/client_protocol.h"
#include "lib/proxy/connection_age.h"
#include "lib/proxy/forwarded_head.h"
#include "lib/proxy/held_bytes.h"
#include "lib/proxy/passed_tunnel.h"
#include "lib/proxy/proxy_event.h"
#include "lib/proxy/redirect_loops.h"
#include "lib/proxy/target_dial.h"
#include "lib/proxy/unsent_watch.h"

namespace sluice {

class ProxyLoop;

// The listener and the client of a connection.
struct ClientOrigin {
  std::string route;                            // the worker of this connection; empty: the client names the worker
  bool local = false;                           // the client is on this host
  std::string peer;                             // the client's end, for errors and the log
  std::optional<uint32_t> user = std::nullopt;  // on a Unix socket
  // The far end of a connection that is a tunnel, without a request for it. kRoute: to `route`, whatever it carries.
  // kRedirected: to `route`, to which the client had connected before a redirect.
  enum class Opening { kRequest, kRoute, kRedirected };
  Opening opening = Opening::kRequest;
  RedirectLoops* loops = nullptr;  // kRedirected: must outlive the connection
  std::string listener = {};       // its address, as it was configured
  bool tls = false;                // the client shows a certificate

  bool asks() const { return opening == Opening::kRequest; }  // the client asks for a tunnel, or needs none
  std::string Name() const;                                   // for the log: "10.0.0.7:41234", or "uid 1001"
};

// Makes the stream of an accepted connection.
using AcceptedSocket = std::function<std::unique_ptr<StreamSocket>(StreamSocketEvents& events)>;

// One connection of a client: its socket, and its opening until the protocol is known. CONNECT requests a tunnel, and
// HTTP/2 may follow within it. Then an Http2Client or a PassedTunnel has the connection. There is one for each
// connection. Used on the link's thread only.
class ClientConnection final : public std::enable_shared_from_this<ClientConnection>, private StreamSocketEvents {
 public:
  // `proxy` must outlive the connection; see ProxyLoop::Bury.
  ClientConnection(ProxyLoop& proxy, ClientOrigin origin, const AcceptedSocket& accept);
  ~ClientConnection() override;

  // The position in the loop's list of connections.
  using Place = std::list<std::shared_ptr<ClientConnection>>::iterator;
  Place place() const { return place_; }

  // For the loop. Begin comes first, and may end the connection.
  void Begin(Place place);
  // After AnnounceGoAway and GoAway, HTTP/2 ends with its last call, and tunnels go on.
  void AnnounceGoAway();
  void GoAway();
  void Close(const absl::Status& why);
  // Ends the connection if the client does not read its socket. See ClientProtocol for the rest.
  void LookAround(TimePoint now);

  // For the protocol.
  // The worker of a call: the route's, CONNECT's, or the worker that the call names, in this order.
  // `by_authority`: whether its :authority does.
  std::string TargetOf(const ForwardedHead& head, bool& by_authority) const;
  const std::string& connect_target() const { return connect_target_; }  // named by CONNECT; empty: none
  // Reports an event of this client for the log of the proxy.
  void Report(ProxyEvent::Kind kind, std::string target, absl::string_view why, absl::string_view carries = "");
  ClientMembership& membership() { return membership_; }
  // The workers and the class of the client, by the current options.
  const std::shared_ptr<const ClientPolicies::Policy>& policy() { return membership_.policy(*socket_); }
  StreamSocket& socket() { return *socket_; }
  void Write(std::string bytes);
  // Counts the bytes that the client has not read. Returns since when it reads none of them.
  TimePoint WatchSocket();
  void TellTunnelIsOpen();
  // Refuses CONNECT or SOCKS5, with the reason. A redirected client asked for nothing, so it gets no response. If it
  // may not call its target, its connection stays, and what it sends is refused in its own protocol. `early`: bytes
  // that the client has sent without waiting.
  void RefuseConnect(const absl::Status& why, std::string early);
  void EndStuck(const absl::Status& why);  // the client does not read
  void EndWhenDrained(std::string last_bytes = "");
  // The client then sees an error and no proper end. ResetWhenDrained first writes the bytes that wait.
  void ResetWhenDrained();
  void Reset();
  void End();

 private:
  enum class Phase {
    kOpening,     // the protocol is not known yet
    kConnecting,  // CONNECT came, or needs not come: the proxy looks up the target and dials it
    kInTunnel,    // the tunnel is open, or a redirected client takes it for open; its protocol is not known yet
    kOpen,        // the protocol has the connection
    kDraining,    // the connection ends when its last bytes have left
    kOver,
  };

  // StreamSocketEvents.
  void OnConnected() override;
  void OnBytes(absl::string_view bytes) override;
  void OnDrained() override;
  void OnEnded() override;
  void OnDisconnected(absl::Status why) override;

  bool Join();
  void WatchOpening();
  void OnHandshakeFailed(const absl::Status& why);
  void Open(absl::string_view bytes);
  void OpenTo(const std::string& target);
  void AnswerConnect(const absl::Status& reached);
  void OpenTunnel();
  void StartHttp2(const std::string& bytes);
  void StartTunnel(const std::string& bytes, PassedTunnel::Kind kind);

  ProxyLoop& proxy_;
  const ClientOrigin origin_;
  Place place_;
  Phase phase_ = Phase::kOpening;
  bool connected_ = false;  // no byte comes before
  bool ended_ = false;      // the client sends no more
  bool resets_ = false;     // kDraining: at its end
  ClientMembership membership_;
  ClientOpening opening_;  // reads the connection, and then its tunnel
  TimerQueue::Id opening_timer_;
  std::string connect_target_;
  bool socks_ = false;                               // the client asked for it by SOCKS5
  std::string denial_;                               // why a redirected client may not call it; empty: it may
  std::string early_;                                // bytes that came before the tunnel was open
  std::string header_;                               // of the PROXY protocol, for the worker; empty: none
  std::unique_ptr<TargetDial> dial_;                 // null: no CONNECT came
  std::optional<RedirectLoops::Client> redirected_;  // the client was redirected
  UnsentWatch unsent_;                               // of the bytes written to the client
  HeldBytes::Holder held_;                           // the same bytes
  bool going_away_ = false;
  ConnectionAge age_;
  std::unique_ptr<ClientProtocol> protocol_;  // null: not known
  std::unique_ptr<StreamSocket> socket_;      // last, since it calls into the members above
};

}  // namespace sluice
