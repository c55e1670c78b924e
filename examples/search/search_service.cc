#include "search_service.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::examples::search {

absl::StatusOr<std::unique_ptr<SearchService>> SearchService::Open(const std::string& index,
                                                                   std::vector<uint32_t> shards) {
  if (shards.empty()) {
    const absl::StatusOr<std::unique_ptr<Shard>> first = Shard::Open(index, 0);
    if (!first.ok()) return first.status();
    shards.resize((*first)->shard_count());
    std::iota(shards.begin(), shards.end(), 0);
  }
  Shards opened;
  for (const uint32_t number : shards) {
    absl::StatusOr<std::unique_ptr<Shard>> shard = Shard::Open(index, number);
    if (!shard.ok()) return shard.status();
    opened[number] = *std::move(shard);
  }
  return std::unique_ptr<SearchService>(new SearchService(std::move(opened)));
}

grpc::Status SearchService::ListShards(grpc::ServerContext*, const v1::ListShardsRequest*,
                                       v1::ListShardsResponse* response) {
  for (const auto& [number, shard] : shards_) {
    response->add_shards(number);
    response->set_shard_count(shard->shard_count());
    response->set_documents(shard->documents());
  }
  return grpc::Status::OK;
}

grpc::Status SearchService::Query(grpc::ServerContext*, const v1::QueryRequest* request, v1::QueryResponse* response) {
  const auto shard = shards_.find(request->shard());
  if (shard == shards_.end())
    return {grpc::StatusCode::NOT_FOUND, absl::StrCat("shard ", request->shard(), " is not served here")};
  absl::StatusOr<v1::QueryResponse> answer = shard->second->Query(*request);
  // The codes of absl and gRPC have the same numbers.
  if (!answer.ok())
    return {static_cast<grpc::StatusCode>(answer.status().code()), std::string(answer.status().message())};
  *response = *std::move(answer);
  return grpc::Status::OK;
}

}  // namespace sluice::examples::search
