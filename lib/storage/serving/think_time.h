#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace sluice {

// Decides the delay of each response of a process, to test slow workers: `usual` for most responses, and `tail` for a
// share of them, the tail. The draws of a worker depend only on its number and the number of its earlier draws, so runs
// can be replayed. There is one for each process. Thread-safe.
class ThinkTime {
 public:
  struct Options {
    absl::Duration usual;
    absl::Duration tail;    // for the responses in the tail; above 0 if there is a tail
    double tail_share = 0;  // 0: there is no tail; at most 1
  };
  // Returns InvalidArgument for a share outside 0 to 1, for a share without a time, and for a time without a share.
  static absl::Status Validate(const Options& options);

  explicit ThinkTime(const Options& options) : options_(options) {}

  absl::Duration Next(uint32_t worker);

 private:
  const Options options_;
  absl::Mutex mutex_;
  absl::flat_hash_map<uint32_t, std::mt19937> workers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
