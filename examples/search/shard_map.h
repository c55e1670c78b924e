#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "search.pb.h"

namespace sluice::examples::search {

// Assigns shards to the workers of a FanOut. Its workers are `addresses`. Each of the first `shards.size()` receives a
// request for one shard, and the others are replicas. A worker with several shards has several entries.
struct ShardMap {
  uint32_t shard_count = 0;       // of the index
  uint64_t documents = 0;         // in the index
  uint32_t leaf_shard_count = 0;  // of the index at the lowest level of the tree; without a tree shard_count
  std::vector<std::string> addresses;
  std::vector<uint32_t> shards;               // by address, for the addresses that receive a first request
  std::vector<std::vector<size_t>> replicas;  // by the same addresses: positions in `addresses`
  std::vector<uint32_t> leaves;   // by the same addresses: shards of the lowest level below the requested one
  std::vector<uint32_t> missing;  // shards that no worker serves

  // Returns the number of shards of the lowest level, below the mapped and the missing shards. The size of a missing
  // shard is unknown, so it counts as its share of the index.
  uint32_t LeafShards() const;
};

// Part `index` of an index that is cut into `count` parts: the shards index, index + count, index + 2 * count and so
// on.
struct IndexPart {
  uint32_t index = 0;
  uint32_t count = 1;
};

// Assigns the shards of a part of an index to workers, from the workers' responses by address. Spreads shards that
// several workers have over these workers. FailedPrecondition: two workers serve different indexes.
absl::StatusOr<ShardMap> MapShards(const std::map<std::string, v1::ListShardsResponse>& workers, const IndexPart& part);

}  // namespace sluice::examples::search
