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

// The gRPC server of every program: it has a health service, optional reflection, bounded memory, a port of its own,
// and a drain that lets calls finish. One thread owns and drains it.
//
// Health knows three services. "" and "readiness" say whether the server wants new calls. "liveness" says that the
// process runs, also while it drains, since a supervisor would end it halfway otherwise.
class RpcServer {
 public:
  struct Options {
    std::vector<std::string> listen;  // host:port or unix:PATH; port 0 takes a free one
    std::optional<ServerTls> tls;     // for all addresses, Unix sockets included; absent: no TLS
    bool reflection = false;
    size_t memory_bytes = 256 << 20;  // gRPC refuses connections and calls beyond it
    int max_request_bytes = 64 << 10;
    absl::Duration drain_timeout = absl::Seconds(10);
    // How long a drain says NOT_SERVING before it turns calls away, so that clients and load balancers notice.
    absl::Duration drain_delay;
    bool ready = true;  // what health says at the start
  };

  // Starts a server, which serves when this returns. Returns Unavailable if an address is taken or is not one of this
  // machine, and the errors of ValidateServerTls. The services must outlive the server.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const Options& options,
                                                          const std::vector<grpc::Service*>& services);
  ~RpcServer();

  // The addresses as they were given, with the real port in place of port 0.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Sets what health says until the drain. Thread-safe.
  void SetReady(bool ready);

  // Says NOT_SERVING, waits for the drain delay, takes no more calls, lets those under way finish for at most the drain
  // timeout, and cancels the rest. Returns when no call is left. A second call does nothing.
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
