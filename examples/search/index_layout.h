#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

// The layout of an index on disk: a Xapian database for each shard. Every shard has the statistics of the whole index
// as Xapian metadata, so that it can be copied to a worker on its own.
namespace sluice::examples::search {

constexpr uint32_t kMaxShards = 1024;

constexpr const char* kShardCountKey = "shard_count";
constexpr const char* kDocumentsKey = "documents";           // in the index
constexpr const char* kAverageLengthKey = "average_length";  // mean number of terms of a document of the index

// The number of documents of the index with the term. Exists for every term of the shard.
inline std::string TermFrequencyKey(const std::string& term) {
  return "df:" + term;
}

inline std::string ShardFolder(const std::string& index, uint32_t shard) {
  char name[32];
  std::snprintf(name, sizeof(name), "/shard-%04u", shard);
  return index + name;
}

}  // namespace sluice::examples::search
