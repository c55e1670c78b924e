#pragma once

#include <string>

#include "sluice/v1/config.pb.h"

#include "absl/status/statusor.h"
#include "lib/storage/serving/rpc_server.h"
#include "lib/storage/serving/think_time.h"

namespace sluice {

// The options of a worker.
struct WorkerOptions {
  RpcServer::Options rpc_server;
  std::string data;   // the folder that holds worker-NNNN folders
  std::string admin;  // host:port; empty: no admin server
  ThinkTime::Options think_time;
  bool probe = true;  // serve the ProbeService
};

// Checks the config as far as possible without starting anything. Returns InvalidArgument with the field, its value and
// the accepted values.
absl::StatusOr<WorkerOptions> ParseWorkerConfig(const v1::WorkerConfig& config);

}  // namespace sluice
