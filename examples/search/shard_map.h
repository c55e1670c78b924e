#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/search/search.pb.h"

namespace sluice::examples::search {

// Who serves which shard, laid out for a FanOut: its workers are `addresses`, the first `shards.size()` of them are
// asked for one shard each, and the others are replicas. A worker that serves several shards stands there several
// times.
struct ShardMap {
  uint32_t shard_count = 0;  // of the index
  uint64_t documents = 0;    // in the index
  std::vector<std::string> addresses;
  std::vector<uint32_t> shards;               // by address, as far as it is asked first
  std::vector<std::vector<size_t>> replicas;  // by address, likewise: positions in `addresses`
  std::vector<uint32_t> missing;              // shards that nobody serves
};

// From what the workers said, by address. The shards that several workers have are spread over them.
// FailedPrecondition: two workers serve different indexes.
absl::StatusOr<ShardMap> MapShards(const std::map<std::string, v1::ListShardsResponse>& workers);

}  // namespace sluice::examples::search
