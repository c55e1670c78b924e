#pragma once

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "tests/wait_until.h"

namespace sluice::testing {

// How long a test waits for an expected event: far longer than the event takes, even on a machine that is busy with a
// sanitizer.
inline constexpr absl::Duration kPatience = absl::Seconds(30);

// Returns whether the condition became true in time.
inline bool Eventually(absl::FunctionRef<bool()> condition) {
  return WaitUntil(condition, kPatience);
}

}  // namespace sluice::testing
