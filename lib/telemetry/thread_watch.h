#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sluice/time_point.h"

#include "absl/status/status.h"

namespace sluice {

// Whether the threads of a process still run the tasks that they get; for /livez of its AdminServer. It reads no clock.
// There is one for each process. Not thread-safe.
class ThreadWatch {
 public:
  // Longer than any turn of a thread that works, however busy its machine.
  static constexpr std::chrono::seconds kMaxWait{5};

  // Hands a task to a thread, from another thread. The task uses nothing of the ThreadWatch.
  using Post = std::function<void(std::function<void()> task)>;
  void Add(std::string thread, Post post);

  // Posts a task to each thread that has run the last one. Returns Unavailable with the name of a thread that has not
  // run it for more than kMaxWait.
  absl::Status Look(TimePoint now);

 private:
  struct Thread {
    std::string name;
    Post post;
    TimePoint posted;
    std::shared_ptr<std::atomic<bool>> ran;  // null: no task was posted
  };

  std::vector<Thread> threads_;
};

}  // namespace sluice
