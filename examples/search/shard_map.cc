#include "shard_map.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace sluice::examples::search {
namespace {

struct Serving {
  std::vector<std::string> addresses;  // of the workers with the shard
  uint32_t leaves = 1;
};

uint32_t LeafShardCount(const v1::ListShardsResponse& listed) {
  return listed.leaf_shard_count() > 0 ? listed.leaf_shard_count() : listed.shard_count();
}

absl::StatusOr<std::map<uint32_t, Serving>> WorkersOfShards(
    const std::map<std::string, v1::ListShardsResponse>& workers, ShardMap& map) {
  std::map<uint32_t, Serving> serving;
  for (const auto& [address, listed] : workers) {
    if (map.shard_count == 0) {
      map.shard_count = listed.shard_count();
      map.documents = listed.documents();
      map.leaf_shard_count = LeafShardCount(listed);
    }
    // Scores compare only within one index.
    if (listed.shard_count() != map.shard_count || listed.documents() != map.documents ||
        LeafShardCount(listed) != map.leaf_shard_count) {
      return absl::FailedPreconditionError(absl::StrCat(
          "workers: ", address, " serves an index of ", listed.documents(), " documents in ", listed.shard_count(),
          " shards, ", workers.begin()->first, " one of ", map.documents, " in ", map.shard_count));
    }
    for (const uint32_t shard : listed.shards()) {
      serving[shard].addresses.push_back(address);
      if (listed.leaf_shards() > 0) serving[shard].leaves = listed.leaf_shards() / listed.shards_size();
    }
  }
  return serving;
}

}  // namespace

uint32_t ShardMap::LeafShards() const {
  const auto unknown = static_cast<uint32_t>(missing.size() * leaf_shard_count / std::max(shard_count, 1u));
  return std::accumulate(leaves.begin(), leaves.end(), unknown);
}

absl::StatusOr<ShardMap> MapShards(const std::map<std::string, v1::ListShardsResponse>& workers,
                                   const IndexPart& part) {
  ShardMap map;
  const auto serving = WorkersOfShards(workers, map);
  if (!serving.ok()) return serving.status();
  for (uint32_t shard = part.index; shard < map.shard_count; shard += part.count) {
    const auto found = serving->find(shard);
    if (found == serving->end()) {
      map.missing.push_back(shard);
      continue;
    }
    const std::vector<std::string>& addresses = found->second.addresses;
    map.shards.push_back(shard);
    map.leaves.push_back(found->second.leaves);
    map.addresses.push_back(addresses[shard / part.count % addresses.size()]);
  }
  map.replicas.resize(map.shards.size());
  for (size_t i = 0; i < map.shards.size(); ++i) {
    for (const std::string& address : serving->at(map.shards[i]).addresses) {
      if (address == map.addresses[i]) continue;
      map.replicas[i].push_back(map.addresses.size());
      map.addresses.push_back(address);
    }
  }
  return map;
}

}  // namespace sluice::examples::search
