#pragma once

#include <chrono>
#include <thread>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace sluice {

// Polls a condition that has no notification, such as a metric or another process. Returns whether it became true
// within `patience`.
inline bool WaitUntil(absl::FunctionRef<bool()> holds, absl::Duration patience) {
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoMilliseconds(patience);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace sluice
