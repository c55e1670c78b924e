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
  uint32_t shard_count = 0;       // of the index
  uint64_t documents = 0;         // in the index
  uint32_t leaf_shard_count = 0;  // of the index at the lowest level of the tree; shard_count where there is no tree
  std::vector<std::string> addresses;
  std::vector<uint32_t> shards;               // by address, as far as it is asked first
  std::vector<std::vector<size_t>> replicas;  // by address, likewise: positions in `addresses`
  std::vector<uint32_t> leaves;   // by address, likewise: shards of the lowest level below the one asked for
  std::vector<uint32_t> missing;  // shards that nobody serves

  // Of the lowest level, below the shards that are mapped and those that are missing. Of what nobody serves nobody
  // knows how much it is; it is taken for its share of the index.
  uint32_t LeafShards() const;
};

// Of an index that is cut into `count` parts, part `index`: shards index, index + count, index + 2 * count and so on.
struct IndexPart {
  uint32_t index = 0;
  uint32_t count = 1;
};

// From what the workers said, by address: who is asked for which shard of a part of the index. The shards that several
// workers have are spread over them. FailedPrecondition: two workers serve different indexes.
absl::StatusOr<ShardMap> MapShards(const std::map<std::string, v1::ListShardsResponse>& workers, const IndexPart& part);

}  // namespace sluice::examples::search
