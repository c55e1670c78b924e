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

// How long each answer of a process is held back, to test slow workers: most of them for `usual`, a share of them, the
// tail, for `tail`. The draws of a worker depend on nothing but its number and how many it made before, so runs replay.
// One a process; thread-safe.
class ThinkTime {
 public:
  struct Options {
    absl::Duration usual;
    absl::Duration tail;    // of the answers in the tail; above 0 where there is one
    double tail_share = 0;  // 0: there is no tail; at most 1
  };
  // InvalidArgument for a share outside of 0 to 1, and for a share without a time or the other way round.
  static absl::Status Validate(const Options& options);

  explicit ThinkTime(const Options& options) : options_(options) {}

  absl::Duration Next(uint32_t worker);

 private:
  const Options options_;
  absl::Mutex mutex_;
  absl::flat_hash_map<uint32_t, std::mt19937> workers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
