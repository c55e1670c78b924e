#pragma once

#include <cstddef>
#include <vector>

#include "search.pb.h"

namespace sluice::examples::search {

// The best k hits of all shards that have responded so far. Equal scores are sorted by path, so the order does not
// depend on the order of the responses. One for each query. Not thread-safe.
class TopHits {
 public:
  explicit TopHits(size_t k) : k_(k) {}

  void Add(v1::QueryResponse answer);
  std::vector<v1::Hit> Take() { return std::move(hits_); }  // best first

 private:
  const size_t k_;
  std::vector<v1::Hit> hits_;
};

}  // namespace sluice::examples::search
