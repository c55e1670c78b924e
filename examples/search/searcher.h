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
#include "search.pb.h"
#include "shard_map.h"

namespace sluice::examples::search {

// Runs queries: calls every shard of an index, and merges the best hits as they arrive. An aggregator contains this
// code on top of FanOut. One for each index. Thread-safe.
class Searcher {
 public:
  struct Options {
    std::vector<std::string> workers;  // host:port; together they serve the index, some shards possibly several times
    IndexPart part;                    // of the index; default: the whole index
    std::optional<TlsOptions> tls;     // for connections to the workers; absent: plaintext
    uint32_t top_k = 10;
    uint32_t snippet_bytes = 200;
    // For each query, and for the calls that find the shards. `fail_limit` counts shards of the lowest level: if more
    // are missing, a query fails.
    FanOutOptions fan_out;
  };

  // Requests the workers' shards, and connects. Unavailable: no worker responded, or more shards than fail_limit are
  // not served. FailedPrecondition: the workers serve different indexes. Also returns the errors of FanOut::Validate,
  // including those of `tls`.
  static absl::StatusOr<std::unique_ptr<Searcher>> Create(std::shared_ptr<Link> link, Options options);

  // Returns the errors of a FanOut, or Unavailable if no shard responded.
  absl::StatusOr<v1::SearchResult> Search(const std::string& query) const;
  // Uses the limits and the time of the caller's query. Ignores its shard.
  absl::StatusOr<v1::SearchResult> Search(const v1::QueryRequest& query, absl::Duration timeout) const;

  const ShardMap& map() const { return map_; }
  uint64_t documents() const { return map_.documents; }

 private:
  Searcher(Options options, ShardMap map) : options_(std::move(options)), map_(std::move(map)) {}

  int fail_limit() const { return options_.fan_out.fail_limit.value_or(0); }
  absl::Status CheckCoverage(const v1::SearchResult& result) const;
  void AddMissing(const FanOutResult& ended, v1::SearchResult& result) const;

  const Options options_;
  const ShardMap map_;
  std::unique_ptr<FanOut> fan_out_;
};

}  // namespace sluice::examples::search
