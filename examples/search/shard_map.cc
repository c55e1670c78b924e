#include "examples/search/shard_map.h"

#include "absl/strings/str_cat.h"

namespace sluice::examples::search {
namespace {

using Replicas = std::vector<std::string>;  // addresses of the workers that have a shard

absl::StatusOr<std::map<uint32_t, Replicas>> WorkersOfShards(
    const std::map<std::string, v1::ListShardsResponse>& workers, ShardMap& map) {
  std::map<uint32_t, Replicas> serving;
  for (const auto& [address, listed] : workers) {
    if (map.shard_count == 0) {
      map.shard_count = listed.shard_count();
      map.documents = listed.documents();
    }
    // Scores compare within one index only.
    if (listed.shard_count() != map.shard_count || listed.documents() != map.documents) {
      return absl::FailedPreconditionError(absl::StrCat(
          "workers: ", address, " serves an index of ", listed.documents(), " documents in ", listed.shard_count(),
          " shards, ", workers.begin()->first, " one of ", map.documents, " in ", map.shard_count));
    }
    for (const uint32_t shard : listed.shards()) serving[shard].push_back(address);
  }
  return serving;
}

}  // namespace

absl::StatusOr<ShardMap> MapShards(const std::map<std::string, v1::ListShardsResponse>& workers) {
  ShardMap map;
  const auto serving = WorkersOfShards(workers, map);
  if (!serving.ok()) return serving.status();
  for (uint32_t shard = 0; shard < map.shard_count; ++shard) {
    const auto replicas = serving->find(shard);
    if (replicas == serving->end()) {
      map.missing.push_back(shard);
      continue;
    }
    map.shards.push_back(shard);
    map.addresses.push_back(replicas->second[shard % replicas->second.size()]);
  }
  map.replicas.resize(map.shards.size());
  for (size_t i = 0; i < map.shards.size(); ++i) {
    for (const std::string& address : serving->at(map.shards[i])) {
      if (address == map.addresses[i]) continue;
      map.replicas[i].push_back(map.addresses.size());
      map.addresses.push_back(address);
    }
  }
  return map;
}

}  // namespace sluice::examples::search
