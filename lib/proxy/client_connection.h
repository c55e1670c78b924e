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

// A connection is linked while it has no call and is no tunnel: in front is what has been so for the longest time.
struct IdleTag;
using IdleHook = boost::intrusive::list_base_hook<boost::intrusive::tag<IdleTag>,
                                                  boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;

// Where a connection came in.
struct ClientOrigin {
  std::string route;                            // the worker that this listener stands for; empty: the client names it
  bool local = false;                           // the client is on this host
  std::string peer;                             // the client's end, for errors
  std::optional<uint32_t> user = std::nullopt;  // on a Unix socket
};

// Makes the stream of a connection that was accepted.
using AcceptedSocket = std::function<std::unique_ptr<StreamSocket>(StreamSocketEvents& events)>;

// One connection of a client: HTTP/2 at once, HTTP/2 within a tunnel that CONNECT has asked for, or a tunnel that is
// only passed on. A client that does not read is not read from, so what is kept for it is bounded. Used on the link's
// thread only.
class ClientConnection final : public IdleHook,
                               public Flushable,
                               public StreamSocketEvents,
                               public SessionEvents,
                               public std::enable_shared_from_this<ClientConnection>,
                               private TargetWaiter {
 public:
  // `proxy` must be there until the connection has ended; see ProxyLoop::Bury.
  ClientConnection(ProxyLoop& proxy, ClientOrigin origin, const AcceptedSocket& accept);
  ~ClientConnection() override;

  // In the loop's list of connections.
  using Place = std::list<std::shared_ptr<ClientConnection>>::iterator;
  Place place() const { return place_; }
  void set_place(Place place) { place_ = place; }

  // The worker of a call: that of the route, that of CONNECT, or the one that the call names.
  std::string TargetOf(const ForwardedHead& head) const;
  bool keeps_authority() const { return !connect_target_.empty(); }
  // Which workers the client may call, by the options of now.
  const std::shared_ptr<const TargetPolicy>& policy();

  // For the calls.
  void SendHeaders(const ProxiedCall& call, const HeaderList& headers, bool end_stream);
  // With `more`, the bytes may wait for others that follow soon; the next write of the connection takes them along.
  void SendData(const ProxiedCall& call, std::string bytes, bool end_stream, bool more);
  void Grant(const ProxiedCall& call, uint32_t bytes);
  void Reset(const ProxiedCall& call, Http2Error error);
  void EndSoon(const ProxiedCall& call);               // resets the stream when all of the answer has left
  int64_t UnsentBytes(const ProxiedCall& call) const;  // of its answer, headers included
  void Forget(const ProxiedCall& call);

  // Lets the calls end, and takes no more. The connection ends with the last one.
  void AnnounceGoAway();
  void GoAway();
  void Close(const absl::Status& why);
  // Writes what has waited for more. Ends the calls that are late, which clients do themselves unless they hang, and
  // those of which the client has taken nothing for ProxyOptions::client_stall_timeout; all of them, and the
  // connection, if it does not read its socket. A tunnel of which one end reads nothing ends, too.
  void LookAround(TimePoint now);

  void Flush() override;

 private:
  enum class Phase {
    kOpening,     // nothing is decided
    kConnecting,  // CONNECT came, and its target is looked up
    kInTunnel,    // the tunnel is open, and what it carries is not known
    kHttp2,
    kTunnel,   // bytes are passed on
    kLeaving,  // the client has gone, and what it said last leaves its tunnel
    kRefused,  // the answer leaves, and the connection ends
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
  bool connected_ = false;                          // nothing was said before
  std::shared_ptr<const ClientPolicies> policies_;  // of which policy_ is
  std::shared_ptr<const TargetPolicy> policy_;
  ClientOpening opening_;
  TimerQueue::Id opening_timer_;
  std::string connect_target_;      // of CONNECT
  std::shared_ptr<Target> target_;  // the same
  std::string early_;               // what came before the tunnel was open
  bool flush_queued_ = false;
  UnsentWatch unsent_;                                   // of what was written to the client
  HeldBytes::Holder held_{[this] { ReleaseSocket(); }};  // the same bytes
  bool backlog_ = false;      // more is unsent than may be; nothing is added until it has left
  bool read_is_due_ = false;  // a backlog has left, and the client has not been read since
  bool going_away_ = false;
  std::map<int32_t, std::shared_ptr<ProxiedCall>> calls_;  // whose stream is open
  std::vector<int32_t> ending_;                            // see EndSoon
  std::set<int32_t> fed_;                                  // streams with bytes that have not left
  std::unique_ptr<Http2Session> session_;                  // above the calls: they outlive their streams
  std::unique_ptr<Tunnel> tunnel_;
  std::unique_ptr<StreamSocket> socket_;  // last, since it calls into the members above
};

}  // namespace sluice
