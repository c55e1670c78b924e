#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace sluice {

struct VerifyOptions {
  bool partial = false;  // only some workers' folders exist, as on the machine of one worker
  std::function<void(const std::string& problem)> on_problem;
};

struct VerifyReport {
  uint64_t files = 0;
  uint64_t stripes = 0;
  uint64_t srus = 0;  // copies read; each replica counts
  uint64_t bytes = 0;
  uint64_t problems = 0;
};

// Reads every stripe of every file under `root` and compares it with the manifests. The manifests must be present,
// valid and the same at every worker. Stripes must have the right length, and every checksum must match. In a tree, it
// verifies and counts every level. A problem is a sentence that names file, worker and SRU. The status is an error only
// if `root` cannot be read.
absl::StatusOr<VerifyReport> VerifyStripes(const std::string& root, const VerifyOptions& options);

}  // namespace sluice
