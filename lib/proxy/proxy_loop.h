#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sluice/tls_options.h"

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/link/link_loop.h"
#include "lib/net/opening_pool.h"
#include "lib/net/timer_queue.h"
#include "lib/proxy/access_record.h"
#include "lib/proxy/called_methods.h"
#include "lib/proxy/client_connection.h"
#include "lib/proxy/client_groups.h"
#include "lib/proxy/client_policies.h"
#include "lib/proxy/forwarded_head.h"
#include "lib/proxy/held_bytes.h"
#include "lib/proxy/proxy_event.h"
#include "lib/proxy/proxy_metrics.h"
#include "lib/proxy/retry_throttle.h"
#include "lib/proxy/target_table.h"

namespace sluice {

// The options of a proxy.
struct ProxyOptions {
  // Name of a request header that names the worker instead of :authority; empty: none. The proxy forwards the header to
  // the worker.
  std::string worker_header;
  // Forwards tunnels to targets that are not workers: of clients on Unix sockets, and of other clients on this host. A
  // client that connects from loopback may be a mesh, a port forwarding or a TLS terminator that passes on strangers.
  bool pass_tunnels = true;
  bool pass_tunnels_from_loopback = false;
  bool pass_worker_tunnels = true;  // forwards tunnels to workers that carry no plaintext HTTP/2
  // Schedules these tunnels, if the policy of the link is grants or rolling.
  bool schedule_worker_tunnels = true;
  std::string worker_tunnel_class;  // the class of traffic of these tunnels; empty: the first one
  // Approximate TCP receive window of each such tunnel that is not scheduled; 0: the kernel's choice. The default is
  // Linux's initial window, before Linux grows it to megabytes. It fills 1 Gbit/s up to a round trip of half a
  // millisecond.
  int64_t worker_tunnel_receive_bytes = 64 << 10;
  // Maximum time until a connection starts HTTP/2 or CONNECT, until a CONNECT reaches its target, and until HTTP/2
  // starts in its tunnel.
  std::chrono::nanoseconds opening_timeout = std::chrono::seconds(10);
  // The proxy ends a call whose client reads nothing of the response for this long. A client that has gone, and whose
  // last bytes in a tunnel nobody reads, counts as one.
  std::chrono::nanoseconds client_stall_timeout = std::chrono::seconds(60);
  // The proxy ends a forwarded tunnel in which no byte has passed for this long; 0: it does not. The first is for a
  // tunnel of which one direction has ended: the other end may have gone, too, without a sign of it.
  std::chrono::nanoseconds half_closed_timeout = std::chrono::minutes(5);
  std::chrono::nanoseconds tunnel_idle_timeout = std::chrono::nanoseconds(0);
  // The proxy ends a forwarded tunnel whose client or worker reads nothing of the bytes that wait for it for this long;
  // 0: it does not. TCP itself does not either: both ends may stop for as long as they exist.
  std::chrono::nanoseconds tunnel_stall_timeout = std::chrono::nanoseconds(0);
  // The proxy asks a client's connection to end (GOAWAY) once it is so old, give or take a tenth; 0: it does not. The
  // connection ends when its last call ends, and at the latest after the grace. Tunnels of clients with a certificate
  // end then, too. Tunnels of other clients go on: nothing about them would be checked again.
  std::chrono::nanoseconds max_connection_age = std::chrono::nanoseconds(0);
  std::chrono::nanoseconds max_connection_age_grace = std::chrono::seconds(10);
  uint32_t proxy_protocol_version = 2;  // of the headers for workers that expect one: see ProxyHeader
  // The connections of known clients. At each listener, a sixteenth of this number, but 16 to 1024, may wait until
  // their clients are known.
  size_t max_connections = 16384;
  size_t max_calls = 65536;               // calls of all clients; above it the proxy refuses calls
  uint32_t max_streams = 4096;            // calls of one connection
  uint32_t max_header_bytes = 64u << 10;  // headers of one call, counted as in HTTP/2
  // Bound of the response bytes that clients have not read. The same bound applies to the request bytes, with headers,
  // that workers have not read. Above it, the proxy ends calls, starting with the call whose client or worker has read
  // nothing for the longest time. A response must have waited for two seconds, unless the total exceeds twice the
  // bound. A call that holds less than max_held_bytes / max_calls is not ended.
  int64_t max_held_bytes = int64_t{256} << 20;
  int64_t max_held_bytes_per_call = int64_t{1} << 20;  // the same for the response of one call
  size_t max_targets = 65536;
  double access_sample = 1;  // share of the calls with OK that are recorded; all others are
  // Maximum number of attempts of a call, 1 to 5, that names none. After the first, an attempt goes to another address
  // of the target, if its worker has failed with UNAVAILABLE before it has begun a response.
  size_t max_attempts = 1;
  RetryThrottle::Options retry_throttle;
};

// The part of a proxy that runs on its link's thread: the client connections, the calls, and the targets that they
// name. There is one for each proxy. Used on the link's thread only.
class ProxyLoop {
 public:
  // The link and the metrics must outlive the loop. `tls` is for workers; null means plaintext.
  ProxyLoop(LinkLoop& link, ClientPolicies policies, std::shared_ptr<TlsContext> tls, ProxyOptions options,
            ProxyMetrics& metrics);
  ~ProxyLoop();  // as Close
  ProxyLoop(const ProxyLoop&) = delete;
  ProxyLoop& operator=(const ProxyLoop&) = delete;

  // Takes a connection. While its client is not known, it waits in an OpeningPool. Then ClientGroups decides.
  void Accept(const ClientOrigin& origin, const AcceptedSocket& accept);
  // Ends all connections with this status.
  void Close(const absl::Status& why);
  // Asks clients to reconnect to another proxy, accepts the calls that they have already sent, and calls `on_drained`
  // after the last call has ended.
  void Drain(std::function<void()> on_drained);
  // Applies to calls that begin later.
  void Reconfigure(ClientPolicies policies, ProxyOptions options);
  // As TargetPolicy::SetOwnAddresses. Call it before the first Accept.
  void SetOwnAddresses(std::vector<std::string> addresses, std::vector<std::string> host);

  void SetOnEvent(OnProxyEvent on_event, OnAccessRecord on_access = nullptr) {
    on_event_ = std::move(on_event);
    on_access_ = std::move(on_access);
  }
  void Report(const ProxyEvent& event) const {
    if (on_event_ != nullptr) on_event_(event);
  }

  // For the connections.
  void Bury(ClientConnection& connection);  // once; destroys it at the end of the turn
  OpeningPool& openings() { return openings_; }
  ClientGroups& groups() { return groups_; }
  Http2Session::Options session_options() const;

  // For the calls.
  TargetTable& targets() { return targets_; }
  CalledMethods& methods() { return methods_; }
  // Hands the stream of a call to the schedule, in the block of its fan-out. If that block has ended, `make` is called
  // a second time. A block has the class of its first call. After an error the stream is destroyed.
  using MakeStream = std::function<std::unique_ptr<ScheduledStream>()>;
  absl::Status Submit(const MakeStream& make, const ForwardedHead& head, size_t traffic_class, TimePoint deadline);
  // A bound that is exceeded ends calls at the end of the turn, and never in the stack that counts. The holders of
  // connections count the bytes of responses that wait at the socket.
  HeldBytes& held_answers() { return held_answers_; }
  HeldBytes& held_requests() { return held_requests_; }
  struct EndedCall {
    const std::string& group;
    const std::string& worker;
    size_t traffic_class;
    const std::string& traceparent;
    TimePoint sent_at;                 // max: the request was not sent
    TimePoint ready_at;                // max: the response has not begun
    std::chrono::nanoseconds granted;  // see AccessRecord
    int64_t response_bytes;
    const std::string& pattern;  // empty: it was never routed to a worker
    const std::string& path;
    absl::StatusCode code;
    std::string limit;  // see AccessRecord
    TimePoint began;
    bool sent;             // the request was sent to its worker
    bool expired;          // it waited for the link for longer than queue_timeout
    bool link_is_late;     // if the code is DEADLINE_EXCEEDED: the link is to blame, not the worker; see AttemptTime
    bool method_exists;    // its worker has sent a status other than UNIMPLEMENTED
    bool refused = false;  // before it began: OnCallBegan was not called
  };
  void OnCallBegan() { metrics_.SetCalls(++calls_); }
  void OnCallEnded(const EndedCall& call);

  LinkLoop& link() { return link_; }
  const ProxyOptions& options() const { return options_; }
  // The name of this proxy in the `via` header of calls.
  const std::string& pseudonym() const { return pseudonym_; }
  const std::shared_ptr<const ClientPolicies>& policies() const { return policies_; }
  ProxyMetrics& metrics() { return metrics_; }
  size_t connections() const { return connections_.size(); }
  size_t calls() const { return calls_; }

 private:
  void LimitHeld();
  void SetPolicies(ClientPolicies policies);
  void SetBounds();

  // A fan-out that will make more calls.
  struct OpenBlock {
    std::string name;
    BlockId id = 0;
    int64_t calls_left = 0;
  };

  void LookAround();
  void TellIfDrained();

  LinkLoop& link_;
  std::shared_ptr<const ClientPolicies> policies_;
  ProxyOptions options_;
  ProxyMetrics& metrics_;
  const std::string pseudonym_;
  std::vector<std::string> own_addresses_;
  std::vector<std::string> host_;  // its IP addresses
  OnProxyEvent on_event_;
  OnAccessRecord on_access_;
  OpeningPool openings_;
  ClientGroups groups_;
  TargetTable targets_;
  CalledMethods methods_;
  std::list<OpenBlock> blocks_;  // the oldest first
  absl::flat_hash_map<std::string, std::list<OpenBlock>::iterator> blocks_by_name_;
  size_t calls_ = 0;
  const std::shared_ptr<const void> alive_ = std::make_shared<char>();  // expires with the loop
  bool limit_queued_ = false;
  HeldBytes held_answers_{[this] {
    metrics_.SetHeldBytes(held_answers_.bytes());
    LimitHeld();
  }};
  HeldBytes held_requests_{[this] {
    metrics_.SetHeldRequestBytes(held_requests_.bytes());
    LimitHeld();
  }};
  TimerQueue::Id look_timer_;
  size_t looks_ = 0;  // since the last sweep of the targets
  TimerQueue::Id go_away_timer_;
  std::function<void()> on_drained_;  // null: not draining
  bool closing_ = false;
  std::list<std::shared_ptr<ClientConnection>> connections_;
};

}  // namespace sluice
