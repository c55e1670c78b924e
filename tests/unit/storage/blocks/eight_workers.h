#pragma once

#include <cstdint>

#include "tests/unit/storage/blocks/test_cluster.h"

namespace sluice::testing {

// 8 workers, SRUs of 4096 bytes: the first data block is SRUs 0 to 7.
inline TestCluster::Options EightWorkers(uint32_t replicas = 1) {
  return {.workers = 8, .file_bytes = 8 * 4096 * 3, .replicas = replicas, .reader = {.sru_timeout = absl::Seconds(1)}};
}

inline ReadResult ReadBlock(TestCluster& cluster, uint64_t block, bool allow_partial = false) {
  return Drain(*cluster.reader().Open("data", block, {.allow_partial = allow_partial}));
}

}  // namespace sluice::testing
