#pragma once

#include <csignal>
#include <string>

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 named it
class App;
}

namespace sluice::examples::search {

struct ShardServerOptions {
  std::string listen;      // host:port; port 0 takes a free one
  std::string ready_file;  // empty: none
  // PEM files, read again when they change. Give the first two, or neither for plaintext. With the third, clients need
  // a certificate that this authority has signed.
  std::string certificate_file;
  std::string key_file;
  std::string client_ca_file;
};

void AddShardServerFlags(CLI::App& app, ShardServerOptions& options);

// Blocks SIGINT and SIGTERM in this thread, and in all threads that it starts from now on.
sigset_t BlockTerminationSignals();

// Serves one service on an ordinary gRPC server until one of the blocked signals arrives. Then it accepts no more
// calls, and waits some seconds at most for calls in progress. `what` names the served shards on stderr. Unavailable:
// it cannot serve at the address. Also returns the errors of ValidateTls for the server's files.
absl::Status ServeShards(grpc::Service& service, const ShardServerOptions& options, const sigset_t& termination,
                         const std::string& what);

}  // namespace sluice::examples::search
