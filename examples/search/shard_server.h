#pragma once

#include <memory>
#include <optional>
#include <string>

#include <grpcpp/grpcpp.h>

#include "absl/status/statusor.h"
#include "lib/tls/server_tls.h"

namespace sluice::examples::search {

// A gRPC server of one service, as search-worker and search-aggregator have it. One a process; thread-safe. An ordinary
// server, as anybody would write it.
class ShardServer {
 public:
  // Serves when it returns. `listen` is host:port; port 0 is a free one. The service outlives the server. Without
  // `tls` it serves in the clear. Unavailable: it cannot serve there; the errors of ValidateServerTls.
  static absl::StatusOr<ShardServer> Start(grpc::Service& service, const std::string& listen,
                                           const std::optional<ServerTls>& tls);

  const std::string& address() const { return address_; }  // with the port that was found
  // Takes no more calls, and lets those under way finish, for some seconds at most.
  void Drain();

 private:
  ShardServer(std::unique_ptr<grpc::Server> server, std::string address);

  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace sluice::examples::search
