#pragma once

#include <memory>
#include <string>
#include <vector>

#include <grpcpp/impl/service_type.h>
#include <grpcpp/server.h>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sluice {

// A gRPC server as every program of ours runs one: health service, optional reflection, bounded memory, no port shared
// with another process, a drain that lets calls finish. Owned and drained by one thread.
class RpcServer {
 public:
  struct Options {
    std::vector<std::string> listen;  // host:port or unix:PATH; port 0 takes a free one
    bool reflection = false;
    size_t memory_bytes = 256 << 20;  // gRPC refuses connections and calls beyond it
    int max_request_bytes = 64 << 10;
    absl::Duration drain_timeout = absl::Seconds(10);
  };

  // Serves when it returns. Unavailable: an address is taken, or not one of this machine. The services outlive the
  // server.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const Options& options,
                                                          const std::vector<grpc::Service*>& services);
  ~RpcServer();

  // As they were given, with the port that was found for port 0.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Says NOT_SERVING, takes no more calls, lets those under way finish for at most the drain timeout, and cancels what
  // is left. Returns when nothing is. Once is enough; twice is harmless.
  void Drain();

 private:
  explicit RpcServer(absl::Duration drain_timeout) : drain_timeout_(drain_timeout) {}

  const absl::Duration drain_timeout_;
  std::vector<std::string> addresses_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace sluice
