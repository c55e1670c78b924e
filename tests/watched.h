#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "tests/eventually.h"

namespace sluice::testing {

// A value that one thread changes and a test waits for. Thread-safe, in a way that ThreadSanitizer recognizes: Debian's
// absl::Mutex is not instrumented.
template <class Value>
class Watched {
 public:
  Value Get() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return value_;
  }
  void Change(absl::FunctionRef<void(Value&)> change) {
    const std::lock_guard<std::mutex> lock(mutex_);
    change(value_);
    changed_.notify_all();
  }
  // Returns false if the condition did not become true in time.
  bool Await(const std::function<bool(const Value&)>& condition, absl::Duration patience = kPatience) const {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, absl::ToChronoNanoseconds(patience), [&] { return condition(value_); });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  Value value_{};
};

}  // namespace sluice::testing
