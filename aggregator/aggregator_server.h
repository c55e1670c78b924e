#pragma once

#include <grpcpp/server.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/rpc/block_server.h"
#include "lib/telemetry/admin_server.h"
#include "lib/telemetry/io_thread.h"
#include "sluice/block_reader.h"
#include "sluice/v1/config.pb.h"

namespace sluice {

// The options of an aggregator, read from its config and checked as far as that is possible without starting anything.
struct AggregatorOptions {
  std::string listen;
  std::string admin;  // empty: none
  bool reflection = false;
  absl::Duration drain_timeout = absl::Seconds(10);
  Link::Options link;
  BlockReader::Options reader;
};

// InvalidArgument that names the field of the config.
absl::StatusOr<AggregatorOptions> ParseAggregatorConfig(const v1::AggregatorConfig& config);

// A running aggregator: its link, its reader, the gRPC server and the admin server. One a process; thread-safe.
class AggregatorServer {
 public:
  // Connects to the workers first, and logs those that do not answer. Unavailable: a port is taken.
  static absl::StatusOr<std::unique_ptr<AggregatorServer>> Start(const AggregatorOptions& options, IoThread& io_thread);
  ~AggregatorServer();

  int port() const { return port_; }  // of the BlockService; 0 for a unix socket
  const AdminServer* admin() const { return admin_.get(); }

  // Stops taking reads, lets those under way finish for at most the drain timeout, and cancels what is left.
  void Drain();

 private:
  AggregatorServer(const AggregatorOptions& options, std::shared_ptr<Link> link, std::unique_ptr<BlockReader> reader);
  absl::Status Listen(const AggregatorOptions& options);

  const absl::Duration drain_timeout_;
  const std::shared_ptr<Link> link_;
  const std::unique_ptr<BlockReader> reader_;
  BlockServer service_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  std::unique_ptr<AdminServer> admin_;  // serves until the reads have drained
};

}  // namespace sluice
