#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

// How an index lies on disk: a Xapian database for each shard. Every shard carries the statistics of the whole index as
// Xapian's metadata, so that it can be copied to a worker by itself.
namespace sluice::examples::search {

constexpr uint32_t kMaxShards = 1024;

constexpr const char* kShardCountKey = "shard_count";
constexpr const char* kDocumentsKey = "documents";           // of the index
constexpr const char* kAverageLengthKey = "average_length";  // terms of a document of the index

// Documents of the index that have the term; there for every term of the shard.
inline std::string TermFrequencyKey(const std::string& term) {
  return "df:" + term;
}

inline std::string ShardFolder(const std::string& index, uint32_t shard) {
  char name[32];
  std::snprintf(name, sizeof(name), "/shard-%04u", shard);
  return index + name;
}

}  // namespace sluice::examples::search
