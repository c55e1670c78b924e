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
#include "lib/serving/health_service.h"
#include "lib/tls/server_tls.h"

namespace sluice {

// A gRPC server as every program of ours runs one: health service, optional reflection, bounded memory, no port shared
// with another process, a drain that lets calls finish. Owned and drained by one thread.
//
// Health knows three services: "" and "readiness" say whether new calls are wanted here, "liveness" that the process
// runs: while it drains, too, or whoever watches over it would end it halfway.
class RpcServer {
 public:
  struct Options {
    std::vector<std::string> listen;  // host:port or unix:PATH; port 0 takes a free one
    std::optional<ServerTls> tls;     // of all addresses, Unix sockets included; absent: none
    bool reflection = false;
    size_t memory_bytes = 256 << 20;  // gRPC refuses connections and calls beyond it
    int max_request_bytes = 64 << 10;
    absl::Duration drain_timeout = absl::Seconds(10);
    // A drain says NOT_SERVING for so long before it turns calls away, so that clients hear of it, and load balancers.
    absl::Duration drain_delay;
    bool ready = true;  // from the start
  };

  // Serves when it returns. Unavailable: an address is taken, or not one of this machine; the errors of
  // ValidateServerTls. The services outlive the server.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const Options& options,
                                                          const std::vector<grpc::Service*>& services);
  ~RpcServer();

  // As they were given, with the port that was found for port 0.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // What health says from now on, until the drain. Thread-safe.
  void SetReady(bool ready);

  // Says NOT_SERVING, waits for the drain delay, takes no more calls, lets those under way finish for at most the drain
  // timeout, and cancels what is left. Returns when nothing is. Once is enough; twice is harmless.
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
