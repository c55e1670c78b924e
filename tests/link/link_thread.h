#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "gtest/gtest.h"
#include "lib/link/executor.h"

namespace sluice::testing {

inline constexpr std::chrono::seconds kPatience(30);

// What happened, in its order, for a test that waits for it. Thread-safe.
class EventLog {
 public:
  void Add(std::string event) {
    const std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_all();
  }
  std::vector<std::string> events() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return events_;
  }
  // All events, when there are `count` of them; fewer when patience is at its end.
  std::vector<std::string> Await(size_t count) const {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, kPatience, [&] { return events_.size() >= count; });
    return events_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<std::string> events_;
};

// Runs `task` on the thread of `executor`, and waits for it.
inline void RunOn(Executor& executor, absl::FunctionRef<void()> task) {
  EventLog done;
  executor.Post([&] {
    task();
    done.Add("");
  });
  ASSERT_EQ(done.Await(1).size(), 1U);
}

}  // namespace sluice::testing
