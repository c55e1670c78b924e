#pragma once

#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "search.grpc.pb.h"
#include "searcher.h"

namespace sluice::examples::search {

// Serves a part of an index as one shard: calls the shards of the part, merges their hits, and reports how many
// responded. When its time is over it returns the available hits, and the level above decides whether they are
// sufficient. A plain synchronous gRPC service. One for each process. Thread-safe.
class MidLevelService final : public v1::SearchShards::Service {
 public:
  struct Options {
    IndexPart part;
    absl::Duration timeout = absl::Seconds(10);               // limit for a query, if the caller allows more time
    absl::Duration deadline_reserve = absl::Milliseconds(5);  // part of the caller's time, for the response's way up
  };
  MidLevelService(std::unique_ptr<Searcher> searcher, const Options& options)
      : searcher_(std::move(searcher)), options_(options) {}

  size_t shards() const { return searcher_->map().shards.size(); }

  grpc::Status ListShards(grpc::ServerContext* context, const v1::ListShardsRequest* request,
                          v1::ListShardsResponse* response) override;
  grpc::Status Query(grpc::ServerContext* context, const v1::QueryRequest* request,
                     v1::QueryResponse* response) override;

 private:
  const std::unique_ptr<Searcher> searcher_;
  const Options options_;
};

}  // namespace sluice::examples::search
