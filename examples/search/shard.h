#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <xapian.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "search.pb.h"

namespace sluice::examples::search {

// One shard of an index, open for queries. One for each shard that a worker serves. Thread-safe: Xapian's handles are
// not, so each query borrows one. Their number is the maximum number of concurrent queries.
class Shard {
 public:
  // NotFound: the shard does not exist. FailedPrecondition: it cannot be read, or is not a shard of an index of
  // search-index.
  static absl::StatusOr<std::unique_ptr<Shard>> Open(const std::string& index, uint32_t shard);

  // InvalidArgument: the query's syntax, or a bound of QueryRequest. Internal: an error of Xapian.
  absl::StatusOr<v1::QueryResponse> Query(const v1::QueryRequest& request);

  uint32_t shard_count() const { return shard_count_; }  // of the index
  uint64_t documents() const { return documents_; }      // in the index

 private:
  explicit Shard(std::string folder) : folder_(std::move(folder)) {}

  absl::Status ReadStatistics();
  v1::QueryResponse Run(const Xapian::Database& database, const v1::QueryRequest& request) const;
  Xapian::Query Parse(const Xapian::Database& database, const std::string& text) const;
  Xapian::Database Borrow();
  void GiveBack(Xapian::Database database);

  const std::string folder_;
  uint32_t shard_count_ = 0;
  uint64_t documents_ = 0;
  double average_length_ = 0;
  const Xapian::Stem stemmer_{"english"};

  absl::Mutex mutex_;
  std::vector<Xapian::Database> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::examples::search
