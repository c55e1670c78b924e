#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "lib/storage/serving/disk_pool.h"

namespace sluice {

// Looks whether the data folders can be read, on a thread of its own: a disk that hangs must not stop the thread that
// answers /readyz. There is one for each process. Thread-safe.
class DataCheck {
 public:
  // `check` blocks while the disk does.
  explicit DataCheck(std::function<absl::Status()> check, DiskPool::Options options = {});

  // Returns the result of a check, which begins now unless one is under way. Waits for it for a moment at most; then it
  // returns the result of the last one, or Unavailable if it takes longer than the deadline of the options.
  absl::Status Look();

 private:
  // Outlives a check that the pool has given up.
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool checking = false;  // guarded by mutex
    absl::Status last;      // guarded by mutex
  };

  const std::function<absl::Status()> check_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  DiskPool pool_;
};

}  // namespace sluice
