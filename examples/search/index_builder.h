#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "corpus.h"

namespace sluice::examples::search {

struct IndexOptions {
  std::string folder;   // appears once it is complete
  uint32_t shards = 1;  // 1 to kMaxShards
  // Shard s has 1 / (s + 1)^skew of the size of the largest shard; 0 makes all shards equal. 0 to 4. A fixed sequence
  // of random numbers assigns documents to shards, so the same corpus gives the same shards.
  double skew = 0;
  bool replace = false;  // replaces an existing index
};

struct IndexSummary {
  std::vector<uint64_t> shard_documents;  // by shard
  uint64_t documents = 0;
  uint64_t text_bytes = 0;
  std::vector<std::string> skipped;  // the reason for each file that is not a document
};

// InvalidArgument: an option is out of bounds. FailedPrecondition: the folder already exists or cannot be written, or
// no file is a document. Calls `progress` with the bytes of the files read so far.
absl::StatusOr<IndexSummary> BuildIndex(const IndexOptions& options, const std::vector<CorpusFile>& corpus,
                                        const std::function<void(uint64_t bytes)>& progress);

}  // namespace sluice::examples::search
