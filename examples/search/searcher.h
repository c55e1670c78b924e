#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sluice/fan_out.h"
#include "sluice/link.h"
#include "sluice/tls_options.h"

#include "absl/status/statusor.h"
#include "examples/search/search.pb.h"
#include "examples/search/shard_map.h"

namespace sluice::examples::search {

// Answers queries by asking every shard of an index and merging the best of what they say while it comes in. This is
// what an aggregator is to write on top of FanOut; one for each index. Thread-safe.
class Searcher {
 public:
  struct Options {
    std::vector<std::string> workers;  // host:port; together they serve the index, some shards perhaps several times
    IndexPart part;                    // of the index; default: all of it
    std::optional<TlsOptions> tls;     // of the connections to them; absent: none
    uint32_t top_k = 10;
    uint32_t snippet_bytes = 200;
    // Of each query, and of the question that finds the shards. `fail_limit` counts shards of the lowest level: more of
    // them missing fail a query.
    FanOutOptions fan_out;
  };

  // Asks the workers for their shards, and connects. Unavailable: no worker answered, or more shards than fail_limit
  // are served nowhere. FailedPrecondition: the workers serve different indexes.
  // The errors of FanOut::Validate, those of `tls` included.
  static absl::StatusOr<std::unique_ptr<Searcher>> Create(std::shared_ptr<Link> link, Options options);

  // The errors of a FanOut, or Unavailable where no shard answered at all.
  absl::StatusOr<v1::SearchResult> Search(const std::string& query) const;
  // With the numbers and the time of somebody who asks for others; which shard is not looked at.
  absl::StatusOr<v1::SearchResult> Search(const v1::QueryRequest& query, absl::Duration timeout) const;

  const ShardMap& map() const { return map_; }
  uint64_t documents() const { return map_.documents; }

 private:
  Searcher(Options options, ShardMap map) : options_(std::move(options)), map_(std::move(map)) {}

  absl::Status CheckCoverage(const v1::SearchResult& result) const;
  void AddMissing(const FanOutResult& ended, v1::SearchResult& result) const;

  const Options options_;
  const ShardMap map_;
  std::unique_ptr<FanOut> fan_out_;
};

}  // namespace sluice::examples::search
