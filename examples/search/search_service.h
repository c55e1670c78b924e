#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "search.grpc.pb.h"
#include "shard.h"

namespace sluice::examples::search {

// The service of a worker over some or all shards of an index. A plain synchronous gRPC service. One for each process.
// Thread-safe.
class SearchService final : public v1::SearchShards::Service {
 public:
  // Empty `shards` opens the whole index. NotFound: a shard is not in the index. FailedPrecondition: a shard cannot be
  // read.
  static absl::StatusOr<std::unique_ptr<SearchService>> Open(const std::string& index, std::vector<uint32_t> shards);

  size_t shards() const { return shards_.size(); }

  grpc::Status ListShards(grpc::ServerContext* context, const v1::ListShardsRequest* request,
                          v1::ListShardsResponse* response) override;
  grpc::Status Query(grpc::ServerContext* context, const v1::QueryRequest* request,
                     v1::QueryResponse* response) override;

 private:
  using Shards = std::map<uint32_t, std::unique_ptr<Shard>>;

  explicit SearchService(Shards shards) : shards_(std::move(shards)) {}

  const Shards shards_;  // at least one
};

}  // namespace sluice::examples::search
