#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/search/corpus.h"

namespace sluice::examples::search {

struct IndexOptions {
  std::string folder;   // appears when it is complete
  uint32_t shards = 1;  // 1 to kMaxShards
  // Shard s is made as large as 1 / (s + 1)^skew of the largest: 0 for shards of one size. 0 to 4. Each document goes
  // to a shard by a fixed sequence of random numbers, so the same corpus gives the same shards.
  double skew = 0;
  bool replace = false;  // an index that is there already
};

struct IndexSummary {
  std::vector<uint64_t> shard_documents;  // by shard
  uint64_t documents = 0;
  uint64_t text_bytes = 0;
  std::vector<std::string> skipped;  // why, for each file that is no document
};

// InvalidArgument: an option out of bounds. FailedPrecondition: the folder is there already, or cannot be written; or
// no file is a document. `progress` is told the bytes of the files that were read so far.
absl::StatusOr<IndexSummary> BuildIndex(const IndexOptions& options, const std::vector<CorpusFile>& corpus,
                                        const std::function<void(uint64_t bytes)>& progress);

}  // namespace sluice::examples::search
