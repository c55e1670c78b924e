#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace sluice {

// Bounds how often similar events are logged, since a client can cause any number of them. The first event of a key is
// logged at once, and the next one of that key after an interval. There is one for each kind of event. Not thread-safe.
class LogLimit {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // At most `max_keys` lines in each interval.
  LogLimit(std::chrono::nanoseconds interval, size_t max_keys) : interval_(interval), max_keys_(max_keys) {}

  // Whether to log this event: if so, returns the number of events that were left out since the last line of this key,
  // or since the last line of any key if their own keys found no room.
  std::optional<int64_t> Take(const std::string& key, TimePoint now);

 private:
  struct Key {
    TimePoint next;  // it is not logged before
    int64_t left_out = 0;
  };

  void ForgetOld(TimePoint now);

  const std::chrono::nanoseconds interval_;
  const size_t max_keys_;
  std::map<std::string, Key> keys_;
  int64_t left_out_ = 0;  // of keys without an entry
};

// The same for events of several threads. Thread-safe.
class SharedLogLimit {
 public:
  SharedLogLimit(std::chrono::nanoseconds interval, size_t max_keys) : limit_(interval, max_keys) {}

  std::optional<int64_t> Take(const std::string& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return limit_.Take(key, std::chrono::steady_clock::now());
  }

 private:
  std::mutex mutex_;
  LogLimit limit_;  // guarded by the mutex
};

}  // namespace sluice
