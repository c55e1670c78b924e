#pragma once

#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "examples/search/search.grpc.pb.h"
#include "examples/search/searcher.h"

namespace sluice::examples::search {

// A part of an index as one shard: asks the shards of the part, merges what they say, and tells how many answered. It
// answers with what it has when its time is over, and leaves it to the level above whether that is enough. A plain
// synchronous gRPC service. Thread-safe.
class MidLevelService final : public v1::SearchShards::Service {
 public:
  struct Options {
    IndexPart part;
    absl::Duration timeout = absl::Seconds(10);               // for a query, where the caller has more time
    absl::Duration deadline_reserve = absl::Milliseconds(5);  // of the caller's time, for the answer's way up
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
