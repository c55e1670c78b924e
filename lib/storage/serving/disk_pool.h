#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sluice/time_point.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice {

// Bytes that were read from a disk.
struct DiskBytes {
  std::string data;
  uint64_t total_bytes = 0;  // of the file, for a manifest
};

// The threads that read from one data folder. If the disk does not complete a read within a time, the read ends with
// Unavailable without it, and so do all further ones, until the disk has completed it. So a disk that hangs takes its
// own threads and no others. There is one for each data folder. Thread-safe.
class DiskPool {
 public:
  struct Options {
    size_t threads = 4;  // at most; each begins when it is needed
    std::chrono::nanoseconds deadline = std::chrono::seconds(5);
    std::function<TimePoint()> now = std::chrono::steady_clock::now;
    // Called with an error when the disk is given up, and with OK when it completes reads again. On any thread. May be
    // null.
    std::function<void(const std::string& folder, const absl::Status& state)> on_state = nullptr;
  };
  using Read = std::function<absl::StatusOr<DiskBytes>()>;
  using Done = std::function<void(absl::StatusOr<DiskBytes>)>;

  DiskPool(std::string folder, Options options) : folder_(std::move(folder)), options_(std::move(options)) {}
  ~DiskPool();  // waits for the reads that the disk has not completed
  DiskPool(const DiskPool&) = delete;
  DiskPool& operator=(const DiskPool&) = delete;

  // `done` is called once: on a thread of the pool, within this call, or within Look. `read` must own what it uses, as
  // it may go on after that.
  void Submit(Read read, Done done);

  // Gives up reads that take longer than the deadline. Call it every now and then.
  void Look();

 private:
  struct Waiting {
    Read read;
    Done done;
  };
  struct Running {
    Done done;  // null: given up
    TimePoint began;
  };

  void Serve();
  absl::Status Silent() const;

  const std::string folder_;
  const Options options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::deque<Waiting> waiting_;
  std::list<Running> running_;
  size_t given_up_ = 0;  // of running_
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace sluice
