#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/channel_security.h"

namespace sluice {

struct LoadOptions {
  std::string aggregator;
  ChannelSecurity security;
  std::string file;
  int blocks = 10;                                     // for each client
  absl::Duration duration = absl::InfiniteDuration();  // measured from the first block; no block begins later
  int clients = 1;
  int warmup_blocks = 0;
  std::string compare_with;  // empty: no comparison
  std::string start_file;    // empty: starts after the warm-up
  std::string stop_file;     // no block begins once it exists; empty: none
  absl::Duration timeout = absl::Seconds(600);
};

struct LoadResult {
  uint64_t bytes = 0;
  uint64_t bad_bytes = 0;        // bytes that differ from the source
  double seconds = 0;            // from the first request to the last response
  std::vector<double> block_ms;  // of the blocks that were read
  uint64_t errors = 0;
  std::string error_sample;
};

// Runs a closed loop: every client reads the data blocks of the file round robin, one at a time. Blocks until all
// clients have ended. A block that cannot be read is counted, and the client continues. Returns NotFound or
// FailedPrecondition if the source or the file cannot be opened.
absl::StatusOr<LoadResult> RunLoad(const LoadOptions& options);

}  // namespace sluice
