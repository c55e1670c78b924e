#pragma once

#include <memory>
#include <optional>
#include <string>

#include <grpcpp/grpcpp.h>

#include "absl/status/statusor.h"
#include "lib/tls/server_tls.h"

namespace sluice::examples::search {

// The gRPC server of one service in search-worker and search-aggregator, an ordinary server. One for each process.
// Thread-safe.
class ShardServer {
 public:
  // Serves once it returns. `listen` is host:port; port 0 picks a free port. The service must outlive the server.
  // Without `tls` it serves plaintext. Unavailable: it cannot serve at the address. Also returns the errors of
  // ValidateServerTls.
  static absl::StatusOr<ShardServer> Start(grpc::Service& service, const std::string& listen,
                                           const std::optional<ServerTls>& tls);

  const std::string& address() const { return address_; }  // with the actual port
  // Accepts no more calls, and waits some seconds at most for calls in progress.
  void Drain();

 private:
  ShardServer(std::unique_ptr<grpc::Server> server, std::string address);

  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace sluice::examples::search
