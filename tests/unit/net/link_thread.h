#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "gtest/gtest.h"
#include "lib/net/executor.h"
#include "tests/watched.h"

namespace sluice::testing {

// A log of events in order, for a test that waits for them. Thread-safe.
class EventLog {
 public:
  void Add(std::string event) {
    events_.Change([&](std::vector<std::string>& events) { events.push_back(std::move(event)); });
  }
  std::vector<std::string> events() const { return events_.Get(); }
  // Returns all events once `count` of them have happened; fewer after a timeout.
  std::vector<std::string> Await(size_t count) const {
    events_.Await([count](const std::vector<std::string>& events) { return events.size() >= count; });
    return events_.Get();
  }

 private:
  Watched<std::vector<std::string>> events_;
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
