#pragma once

#include <optional>
#include <string>

#include "sluice/block_reader.h"
#include "sluice/v1/config.pb.h"

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aggregator/mid_level.h"
#include "lib/link/worker_list.h"
#include "lib/storage/serving/block_server.h"
#include "lib/storage/serving/rpc_server.h"

namespace sluice {

// The options of an aggregator.
struct AggregatorOptions {
  std::string admin;  // host:port; empty: no admin server
  std::string level;  // the level in an aggregation tree; empty: no tree
  RpcServer::Options rpc_server;
  Link::Options link;
  WorkerList workers;
  BlockReader::Options reader;  // its workers are the fixed workers of the list
  uint64_t read_memory_bytes = BlockServer::kMaxHeldBytes;
  absl::Duration reload_interval = absl::Seconds(2);  // 0: the config file is not checked for changes
  std::optional<MidLevel::Options> mid_level;         // present: it also serves a level above
};

// Checks the config as far as possible without starting anything. Returns InvalidArgument with the field.
absl::StatusOr<AggregatorOptions> ParseAggregatorConfig(const v1::AggregatorConfig& config);

// Validates the options of the reader, and its files of TLS or not. Validates only the first worker of an open range;
// the others differ only in their number. Returns the errors of BlockReader::Validate.
enum class ReaderFiles { kRead, kLeave };
absl::Status ValidateReader(const AggregatorOptions& options, ReaderFiles files);

}  // namespace sluice
