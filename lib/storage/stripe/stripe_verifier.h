#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace sluice {

struct VerifyOptions {
  bool partial = false;  // only some of the workers' folders are here, as on the machine of one worker
  std::function<void(const std::string& problem)> on_problem;
};

struct VerifyReport {
  uint64_t files = 0;
  uint64_t stripes = 0;
  uint64_t srus = 0;  // copies read, replicas counted each
  uint64_t bytes = 0;
  uint64_t problems = 0;
};

// Reads every stripe of every file under `root` and compares it with the manifests: present, valid, the same at every
// worker; stripes of the right length; every checksum. In a tree, at every level, each of which is counted. A problem
// is a sentence that names file, worker and SRU. The status is an error only where `root` cannot be read.
absl::StatusOr<VerifyReport> VerifyStripes(const std::string& root, const VerifyOptions& options);

}  // namespace sluice
