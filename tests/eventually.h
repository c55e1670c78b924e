#pragma once

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "tests/wait_until.h"

namespace sluice::testing {

// How long a test waits for what has to happen. Far more than it takes, on a machine that is busy with a sanitizer.
inline constexpr absl::Duration kPatience = absl::Seconds(30);

// Whether it came true in time.
inline bool Eventually(absl::FunctionRef<bool()> condition) {
  return WaitUntil(condition, kPatience);
}

}  // namespace sluice::testing
