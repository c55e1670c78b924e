#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/impl/service_type.h>
#include <grpcpp/server.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "lib/storage/serving/health_service.h"
#include "lib/tls/server_tls.h"

namespace sluice {

// The gRPC server of every program. It has a health service, optional reflection, bounded memory, a port that no other
// server shares, and a drain that lets calls finish. One thread owns and drains it.
//
// The health service has three names. "" and "readiness" report whether the server accepts new calls. "liveness"
// reports that the process runs, even while it drains. Otherwise a supervisor would kill it during the drain.
class RpcServer {
 public:
  struct Options {
    std::vector<std::string> listen;  // host:port or unix:PATH; port 0 selects a free port
    std::optional<ServerTls> tls;     // for all addresses, Unix sockets included; absent: no TLS
    bool reflection = false;
    size_t memory_bytes = 256 << 20;  // gRPC refuses connections and calls beyond it
    int max_request_bytes = 64 << 10;
    absl::Duration drain_timeout = absl::Seconds(10);
    // How long a drain reports NOT_SERVING before it refuses calls, so that clients and load balancers notice.
    absl::Duration drain_delay;
    bool ready = true;  // the initial health
  };

  // Starts a server, which serves when this returns. Returns Unavailable if an address is in use or not one of this
  // machine, and the errors of ValidateServerTls. The services must outlive the server.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const Options& options,
                                                          const std::vector<grpc::Service*>& services);
  ~RpcServer();

  // The given addresses, with the real port instead of port 0.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Sets the health until the drain. Thread-safe.
  void SetReady(bool ready);

  // Reports NOT_SERVING, waits for the drain delay, and refuses new calls. It lets current calls finish for at most the
  // drain timeout, and cancels the rest. Returns when no call is left. A second call does nothing.
  void Drain();

 private:
  explicit RpcServer(const Options& options)
      : drain_delay_(options.drain_delay), drain_timeout_(options.drain_timeout), health_(options.ready) {}

  const absl::Duration drain_delay_;
  const absl::Duration drain_timeout_;
  std::vector<std::string> addresses_;
  HealthService health_;
  absl::Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace sluice
