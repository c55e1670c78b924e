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
#include "lib/link/link_core.h"
#include "lib/link/method_history.h"
#include "lib/net/timer_queue.h"
#include "lib/proxy/client_connection.h"
#include "lib/proxy/client_policies.h"
#include "lib/proxy/forwarded_head.h"
#include "lib/proxy/held_bytes.h"
#include "lib/proxy/proxy_metrics.h"
#include "lib/proxy/target.h"
#include "lib/proxy/target_policy.h"
#include "lib/proxy/worker_stream.h"

namespace sluice {

// The options of a proxy.
struct ProxyOptions {
  // Name of a request field that names the worker in place of :authority; empty: none. The worker gets the field, too.
  std::string worker_field;
  bool pass_tunnels = true;         // of local clients, to targets that are no workers
  bool pass_worker_tunnels = true;  // that carry something else than HTTP/2 in the clear to a worker
  // Window of TCP for what comes back through one of those, about; 0: the kernel's choice. No schedule bounds what a
  // worker sends there. The default is what Linux begins with, before it lets the window grow to megabytes: it fills
  // 1 Gbit/s up to a round trip of half a millisecond.
  int64_t worker_tunnel_receive_bytes = 64 << 10;
  std::chrono::nanoseconds opening_timeout = std::chrono::seconds(10);  // until a connection speaks HTTP/2
  // A client that takes nothing of an answer for so long loses it.
  std::chrono::nanoseconds client_stall_timeout = std::chrono::seconds(60);
  size_t max_connections = 16384;
  size_t max_calls = 65536;               // of all clients; above it calls are refused
  uint32_t max_streams = 4096;            // of one connection
  uint32_t max_header_bytes = 64u << 10;  // of one call, as HTTP/2 counts
  // Bound of the answers that clients do not take, and of the requests that workers do not take, heads included; the
  // same for each. Above it, calls end, those first whose client or worker has taken nothing for the longest time: of
  // answers only after two seconds of that, but above twice the bound at once. No call ends that holds less than
  // max_held_bytes / max_calls.
  int64_t max_held_bytes = int64_t{256} << 20;
  int64_t max_held_bytes_per_call = int64_t{1} << 20;  // the same for one call
  size_t max_targets = 65536;
};

// Everything of one proxy that happens on its link's thread: the connections of clients, the calls, and the targets
// that they name. There is one for each proxy. Used on the link's thread only.
class ProxyCore {
 public:
  // The link and the metrics must outlive the core. `tls` is for workers; null means plaintext.
  ProxyCore(LinkCore& link, ClientPolicies policies, std::shared_ptr<TlsContext> tls, ProxyOptions options,
            ProxyMetrics& metrics);
  ~ProxyCore();  // as Close
  ProxyCore(const ProxyCore&) = delete;
  ProxyCore& operator=(const ProxyCore&) = delete;

  // Above ProxyOptions::max_connections the connection that has been idle for the longest time ends; if none is idle,
  // the new one does.
  void Accept(const ClientOrigin& origin, const AcceptedSocket& accept);
  // Ends all connections with this status.
  void Close(const absl::Status& why);
  // Asks clients to go elsewhere, takes what they have sent meanwhile, and calls back when the last call has ended.
  void Drain(std::function<void()> on_drained);
  // Calls that begin from now on follow these.
  void Reconfigure(ClientPolicies policies, ProxyOptions options);
  // The proxy's own addresses, which nothing leads to. Before the first Accept.
  void SetOwnAddresses(std::vector<std::string> addresses);

  // Told of each client whose connection could not be made, on the link's thread: "10.0.0.7:41234 showed no
  // certificate".
  void SetOnHandshakeFailed(std::function<void(const absl::Status&)> told) { on_handshake_failed_ = std::move(told); }

  // For the connections.
  void Bury(ClientConnection& connection);  // once; destroys it at the end of the turn
  void OnIdle(ClientConnection& connection) { idle_.push_back(connection); }
  void OnHandshakeFailed(const absl::Status& why);
  Http2Session::Options session_options() const;
  // Calls of which the worker's stream is still there count, too: it may have to wait for its reset.
  bool MayTakeCall() const { return static_cast<size_t>(living_calls_.use_count()) <= options_.max_calls; }

  // For the calls.
  absl::StatusOr<std::shared_ptr<Target>> FindTarget(std::shared_ptr<const TargetPolicy> policy,
                                                     const std::string& name);
  // Hands the stream of a call to the schedule, in the block of its fan-out. Where that block has ended, the stream is
  // made a second time. After an error it is gone.
  using MakeStream = std::function<std::unique_ptr<WorkerStream>()>;
  absl::Status Submit(const MakeStream& make, const ForwardedHead& head, TimePoint deadline);
  int64_t ExpectedBytes(const std::string& path) const;
  // Whether calls of this method may stay open between messages. The proxy cannot know which methods are streams; it
  // takes a method for unary if the last response that ended had one message.
  bool MayIdle(const std::string& path) const;
  void ObserveResponse(const std::string& path, int64_t bytes, bool one_message);
  // Those of connections count what waits at the socket, too.
  void CountHeldAnswer(HeldBytes::Holder& holder, int64_t bytes);
  HeldBytes& held_answers() { return held_answers_; }
  void LimitHeldAnswers();
  void CountHeldRequest(HeldBytes::Holder& holder, int64_t bytes);
  const HeldBytes& held_requests() const { return held_requests_; }
  void LimitHeldRequests();
  struct EndedCall {
    const std::string& pattern;  // empty: it never had a worker
    const std::string& path;
    absl::StatusCode code;
    TimePoint began;
    bool sent;           // to its worker
    bool link_is_late;   // and not the worker, if the code is DEADLINE_EXCEEDED; see AttemptTime
    bool method_exists;  // its worker has answered with a status other than UNIMPLEMENTED
  };
  // A call holds what this returns for as long as it is there.
  std::shared_ptr<const void> OnCallBegan();
  void OnCallEnded(const EndedCall& call);

  LinkCore& link() { return link_; }
  const ProxyOptions& options() const { return options_; }
  // The name of this proxy in the `via` of calls.
  const std::string& pseudonym() const { return pseudonym_; }
  const std::shared_ptr<const ClientPolicies>& policies() const { return policies_; }
  ProxyMetrics& metrics() { return metrics_; }
  size_t connections() const { return connections_.size(); }
  size_t calls() const { return calls_; }

 private:
  void SetPolicies(ClientPolicies policies);
  void SetHeldBounds();

  // A fan-out of which more calls are to come.
  struct OpenBlock {
    std::string name;
    BlockId id = 0;
    int64_t calls_left = 0;
  };

  ScheduledStream& Take(const MakeStream& make);
  void SweepTargets();
  void MakeRoomForTarget();
  void LookAround();
  void MakeRoom();
  void TellIfDrained();

  LinkCore& link_;
  std::shared_ptr<const ClientPolicies> policies_;
  const std::shared_ptr<TlsContext> tls_;
  ProxyOptions options_;
  ProxyMetrics& metrics_;
  const std::string pseudonym_;
  std::vector<std::string> own_addresses_;
  std::function<void(const absl::Status&)> on_handshake_failed_;  // may be null
  // Clients whom another policy holds for do not share a target.
  absl::flat_hash_map<std::pair<std::shared_ptr<const TargetPolicy>, std::string>, std::shared_ptr<Target>> targets_;
  TimePoint swept_targets_;
  TimePoint make_room_at_;  // no earlier
  struct Method {
    MethodHistory history;
    bool unary = false;
  };
  absl::flat_hash_map<std::string, Method> methods_;
  std::list<OpenBlock> blocks_;  // the oldest first
  absl::flat_hash_map<std::string, std::list<OpenBlock>::iterator> blocks_by_name_;
  size_t calls_ = 0;
  const std::shared_ptr<const void> living_calls_ = std::make_shared<char>();  // one use is the core's
  HeldBytes held_answers_;
  HeldBytes held_requests_;
  TimerQueue::Id look_timer_;
  TimerQueue::Id go_away_timer_;
  std::function<void()> on_drained_;  // null: not draining
  bool closing_ = false;
  std::list<std::shared_ptr<ClientConnection>> connections_;
  boost::intrusive::list<ClientConnection, boost::intrusive::base_hook<IdleHook>,
                         boost::intrusive::constant_time_size<false>>
      idle_;
};

}  // namespace sluice
