#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <boost/intrusive/list.hpp>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/http2/session.h"
#include "lib/link/connection.h"
#include "lib/net/executor.h"
#include "lib/net/timer_queue.h"
#include "lib/proxy/client_opening.h"
#include "lib/proxy/client_policies.h"
#include "lib/proxy/held_bytes.h"
#include "lib/proxy/proxied_call.h"
#include "lib/proxy/unsent_watch.h"

namespace sluice {

class ProxyLoop;
class Tunnel;

// Links a connection while it has no call and is not a tunnel. The longest idle connection is in front.
struct IdleTag;
using IdleHook = boost::intrusive::list_base_hook<boost::intrusive::tag<IdleTag>,
                                                  boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;

// The listener and the client of a connection.
struct ClientOrigin {
  std::string route;                            // the worker of this listener; empty: the client names the worker
  bool local = false;                           // the client is on this host
  std::string peer;                             // the client's end, for errors
  std::optional<uint32_t> user = std::nullopt;  // on a Unix socket
};

// Makes the stream of an accepted connection.
using AcceptedSocket = std::function<std::unique_ptr<StreamSocket>(StreamSocketEvents& events)>;

// One connection of a client: HTTP/2 from the start, HTTP/2 in a tunnel that CONNECT requested, or a tunnel whose bytes
// the proxy passes on. There is one for each connection. The proxy does not read a client that does not read, so the
// bytes held for it are bounded. Used on the link's thread only.
class ClientConnection final : public IdleHook,
                               public Flushable,
                               public StreamSocketEvents,
                               public SessionEvents,
                               public std::enable_shared_from_this<ClientConnection>,
                               private TargetWaiter {
 public:
  // `proxy` must outlive the connection; see ProxyLoop::Bury.
  ClientConnection(ProxyLoop& proxy, ClientOrigin origin, const AcceptedSocket& accept);
  ~ClientConnection() override;

  // The position in the loop's list of connections.
  using Place = std::list<std::shared_ptr<ClientConnection>>::iterator;
  Place place() const { return place_; }
  void set_place(Place place) { place_ = place; }

  // The worker of a call: the route's, CONNECT's, or the worker that the call names, in this order.
  std::string TargetOf(const ForwardedHead& head) const;
  bool keeps_authority() const { return !connect_target_.empty(); }
  // The workers that the client may call, by the current options.
  const std::shared_ptr<const TargetPolicy>& policy();

  // For the calls.
  void SendHeaders(const ProxiedCall& call, const HeaderList& headers, bool end_stream);
  // If `more` is true, the bytes may wait for bytes that follow soon. The next write of the connection includes them.
  void SendData(const ProxiedCall& call, std::string bytes, bool end_stream, bool more);
  void Grant(const ProxiedCall& call, uint32_t bytes);
  void Reset(const ProxiedCall& call, Http2Error error);
  void EndSoon(const ProxiedCall& call);               // resets the stream when all of the response has left
  int64_t UnsentBytes(const ProxiedCall& call) const;  // of its response, headers included
  void Forget(const ProxiedCall& call);

  // Accepts no new calls. The connection ends with its last call.
  void AnnounceGoAway();
  void GoAway();
  void Close(const absl::Status& why);
  // Writes the bytes that waited for more. Ends calls that are late, which only a hung client leaves open, and calls
  // whose response the client has not read for ProxyOptions::client_stall_timeout. If the client does not read its
  // socket, ends the connection with all calls. Also ends a tunnel if one of its ends reads nothing.
  void LookAround(TimePoint now);

  void Flush() override;

 private:
  enum class Phase {
    kOpening,     // the protocol is not known yet
    kConnecting,  // CONNECT came, and the proxy looks up its target
    kInTunnel,    // the tunnel is open, and its protocol is not known yet
    kHttp2,
    kTunnel,   // the proxy passes bytes on
    kLeaving,  // the client has gone, and its last bytes leave the tunnel
    kRefused,  // the connection ends when the refusal has left
    kOver,
  };
  enum class TunnelKind { kWorker, kOther };

  // StreamSocketEvents.
  void OnConnected() override { connected_ = true; }
  void OnBytes(absl::string_view bytes) override;
  void OnDrained() override;
  void OnDisconnected(absl::Status why) override;
  // SessionEvents.
  StreamEvents* OnStream(int32_t stream) override;

  int64_t UnsentBytes(int32_t stream) const;
  void OnOpeningTimeout();
  void Open(absl::string_view bytes);
  void OnConnectRequest();
  void OnTargetKnown() override;
  void AnswerConnect(const absl::Status& worker);
  void StartHttp2(const std::string& bytes);
  void StartTunnel(const std::string& bytes, TunnelKind kind);
  void OnTunnelBytes(absl::string_view bytes);
  void OnTunnelBacklog(bool backlog);
  void OnTunnelOver(TunnelKind kind, const absl::Status& why, bool opened);
  void LookAtTunnel(TimePoint now);
  void LeaveTunnel();
  void Receive(absl::string_view bytes);
  void RefuseHttp1(std::string answer);
  void FlushLater();
  void Write(std::string bytes);
  void WatchSocket();
  void TellTaken();
  void ReleaseSocket();
  void EndStuck(const absl::Status& why);
  void EndIfDone();
  void End();

  ProxyLoop& proxy_;
  const ClientOrigin origin_;
  Place place_;
  Phase phase_ = Phase::kOpening;
  bool connected_ = false;                          // no byte comes before
  std::shared_ptr<const ClientPolicies> policies_;  // contains policy_
  std::shared_ptr<const TargetPolicy> policy_;
  ClientOpening opening_;
  TimerQueue::Id opening_timer_;
  std::string connect_target_;      // named by CONNECT
  std::shared_ptr<Target> target_;  // of that name
  std::string early_;               // bytes that came before the tunnel was open
  bool flush_queued_ = false;
  UnsentWatch unsent_;                                   // of the bytes written to the client
  HeldBytes::Holder held_{[this] { ReleaseSocket(); }};  // the same bytes
  bool backlog_ = false;                                 // the socket is congested; write nothing until OnDrained
  bool read_is_due_ = false;                             // a backlog has left, and the client has not been read since
  bool going_away_ = false;
  std::map<int32_t, std::shared_ptr<ProxiedCall>> calls_;  // whose stream is open
  std::vector<int32_t> ending_;                            // see EndSoon
  std::set<int32_t> fed_;                                  // streams with bytes that have not left
  std::unique_ptr<Http2Session> session_;                  // above the calls: they outlive their streams
  std::unique_ptr<Tunnel> tunnel_;
  std::unique_ptr<StreamSocket> socket_;  // last, since it calls into the members above
};

}  // namespace sluice
