#pragma once

#include <chrono>
#include <thread>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace sluice {

// For what nothing tells of, as a metric or another process: whether it came to hold while patience lasted.
inline bool WaitUntil(absl::FunctionRef<bool()> holds, absl::Duration patience) {
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoMilliseconds(patience);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace sluice
