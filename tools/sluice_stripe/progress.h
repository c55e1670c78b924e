#pragma once

#include <chrono>
#include <cstdint>

namespace sluice {

// One line on stderr that says how far a run is; nothing where stderr is no terminal. Not thread-safe.
class Progress {
 public:
  explicit Progress(uint64_t total_bytes);  // 0: not known
  ~Progress();                              // clears the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Show(uint64_t bytes);

 private:
  const uint64_t total_bytes_;
  const bool terminal_;
  std::chrono::steady_clock::time_point shown_;
};

}  // namespace sluice
