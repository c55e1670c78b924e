#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <grpcpp/impl/service_type.h>
#include <grpcpp/server.h>

#include "sluice/time_point.h"

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "lib/net/opening_pool.h"
#include "lib/storage/serving/health_service.h"
#include "lib/tls/access_rules.h"
#include "lib/tls/server_tls.h"

namespace grpc::experimental {
class ExternalConnectionAcceptor;
}

namespace sluice {

struct AcceptedConnection;
class AsioExecutor;
class AsioListener;
class PassedSockets;

// The gRPC server of every program. It has a health service, optional reflection, a quota of memory, a port that no
// other server shares, and a drain that lets calls finish. One thread owns and drains it.
//
// It accepts connections itself, on a thread of its own, and gives them to gRPC. gRPC's listener up to version 1.53
// never accepts again once the process ran out of file descriptors (CVE-2023-4785). This one waits for free
// descriptors, and closes new connections while few are left, so that files and connections to workers get theirs. gRPC
// receives a connection with its first byte. Until then, it waits in an OpeningPool.
//
// Clients learn the bounds of streams and headers by SETTINGS. gRPC 1.51 applies them once a client has acknowledged
// them, and applies the bound of headers to each frame: see docs/guides/tls.md for the attacks that remain.
// The quota of memory does not stop a flood of headers, and gRPC then ends the connections of others: 32 to 89 % of
// their calls succeeded, and all without a quota. While a client resets its calls, 8 to 100 % of the calls of others
// succeeded, and 1 % without a quota.
//
// The health service has three names. "" and "readiness" report whether the server accepts new calls. "liveness"
// reports that the process runs, even while it drains. Otherwise a supervisor would kill it during the drain.
class RpcServer {
 public:
  struct Options {
    // IP:port, localhost:port, unix:PATH or unix-abstract:NAME; port 0 selects a free port.
    std::vector<std::string> listen;
    std::optional<ServerTls> tls;  // for all addresses, Unix sockets included; absent: no TLS
    // AccessControl tells only the users in these rules apart on Unix sockets. If there are any, each process may
    // connect, otherwise only those of the own user.
    AccessRules access;
    bool reflection = false;
    size_t memory_bytes = 256 << 20;  // above it, gRPC ends calls, and connections without calls; see below
    int max_request_bytes = 64 << 10;
    // A client that has sent nothing for this time is sent a PING. If no answer comes within the timeout, or a client's
    // kernel takes no byte for both together, the connection and its calls end.
    absl::Duration keepalive_time = absl::Seconds(30);
    absl::Duration keepalive_timeout = absl::Seconds(10);
    // A connection takes no new call after this time, give or take a tenth; its client connects again, and its
    // certificate is checked again. Current calls go on.
    absl::Duration max_connection_age = absl::InfiniteDuration();
    // A connection without a call ends after this time, so that idle connections of strangers do not take descriptors
    // permanently.
    absl::Duration max_connection_idle = absl::Minutes(15);
    absl::Duration drain_timeout = absl::Seconds(10);
    // How long a drain reports NOT_SERVING before it refuses calls, so that clients and load balancers notice.
    absl::Duration drain_delay;
    bool ready = true;                      // the initial health
    std::shared_ptr<PassedSockets> passed;  // as AsioListener::Options::passed
    // Called on the accepting thread when a connection is closed because few file descriptors are left, or because it
    // is silent and newer connections need its place. May be null.
    std::function<void(const std::string& peer, absl::string_view why)> on_refused;
    // Called with the reason when a client's certificate is refused, on any thread. May be null.
    std::function<void(const absl::Status& why)> on_refused_certificate;
  };

  // Starts a server, which serves when this returns. Returns InvalidArgument for what is no such address, Unavailable
  // if an address is in use or not one of this machine, and the errors of ValidateServerTls. The services must outlive
  // the server.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const Options& options,
                                                          const std::vector<grpc::Service*>& services);
  ~RpcServer();

  // The given addresses, with the real port instead of port 0.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Returns ResourceExhausted while few file descriptors are left, so that new connections are closed. Thread-safe.
  absl::Status CheckRoom() const;
  // Runs the task on the thread that accepts connections, unless a drain ends that thread before. Thread-safe.
  void PostToAccepting(std::function<void()> task);
  // Sets the health until the drain. Thread-safe.
  void SetReady(bool ready);

  // Reports NOT_SERVING, waits for the drain delay, and refuses new calls. It lets current calls finish for at most the
  // drain timeout, and cancels the rest. Returns when no call is left. A second call does nothing.
  void Drain();

 private:
  struct Opening;
  struct Listener {
    std::unique_ptr<AsioListener> socket;
    TimePoint window_end = TimePoint::min();
    size_t silent = 0;  // connections of this window that had sent nothing when they were accepted
  };

  explicit RpcServer(const Options& options);
  absl::Status Listen(const std::vector<std::string>& addresses, const std::shared_ptr<PassedSockets>& passed);
  void Take(size_t listener, const AcceptedConnection& connection);
  void AwaitFirstByte(size_t listener, int fd, const AcceptedConnection& connection);
  void CountSilent(Listener& listener);
  void HandOver(int fd, std::optional<uint32_t> client);
  void CloseListeners();

  const absl::Duration keepalive_;  // time and timeout together
  const absl::Duration drain_delay_;
  const absl::Duration drain_timeout_;
  const std::function<void(const std::string& peer, absl::string_view why)> on_refused_;
  const uint64_t max_descriptors_;
  const size_t max_silent_;  // of each listener
  std::vector<std::string> addresses_;
  HealthService health_;
  absl::Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  using Acceptor = std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>;
  Acceptor acceptor_;
  std::map<uint32_t, Acceptor> acceptors_;  // for connections of these users
  std::unique_ptr<grpc::Server> server_;
  OpeningPool silent_;  // on the executor's thread, as the two below
  const std::unique_ptr<AsioExecutor> executor_;
  std::vector<Listener> listeners_;  // in the order of addresses_
  std::set<std::shared_ptr<Opening>> openings_;
  std::atomic<bool> has_silent_ = false;  // openings_ is not empty
};

}  // namespace sluice
