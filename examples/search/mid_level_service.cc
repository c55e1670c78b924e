#include "mid_level_service.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::examples::search {
namespace {

absl::Duration TimeLeft(const grpc::ServerContext& context) {
  if (context.deadline() == std::chrono::system_clock::time_point::max()) return absl::InfiniteDuration();
  return absl::FromChrono(context.deadline() - std::chrono::system_clock::now());
}

}  // namespace

grpc::Status MidLevelService::ListShards(grpc::ServerContext*, const v1::ListShardsRequest*,
                                         v1::ListShardsResponse* response) {
  const ShardMap& map = searcher_->map();
  response->add_shards(options_.part.index);
  response->set_shard_count(options_.part.count);
  response->set_documents(map.documents);
  response->set_leaf_shards(map.LeafShards());
  response->set_leaf_shard_count(map.leaf_shard_count);
  return grpc::Status::OK;
}

grpc::Status MidLevelService::Query(grpc::ServerContext* context, const v1::QueryRequest* request,
                                    v1::QueryResponse* response) {
  if (request->shard() != options_.part.index)
    return {grpc::StatusCode::NOT_FOUND, absl::StrCat("shard ", request->shard(), " is not served here")};
  const absl::Duration time = std::min(TimeLeft(*context) - options_.deadline_reserve, options_.timeout);
  if (time <= absl::ZeroDuration()) return {grpc::StatusCode::DEADLINE_EXCEEDED, "no time is left for the shards"};
  absl::StatusOr<v1::SearchResult> found = searcher_->Search(*request, time);
  // The codes of absl and gRPC have the same numbers.
  if (!found.ok()) return {static_cast<grpc::StatusCode>(found.status().code()), std::string(found.status().message())};
  response->mutable_hits()->Swap(found->mutable_hits());
  response->set_matches(found->matches());
  response->set_leaf_shards(found->shard_count());
  response->set_leaf_shards_answered(found->shards_answered());
  response->mutable_missing()->Swap(found->mutable_missing());
  return grpc::Status::OK;
}

}  // namespace sluice::examples::search
