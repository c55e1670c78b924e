#pragma once

#include <cstdint>
#include <string_view>

namespace sluice {

// A condition on the state of Sluice that did not hold. It is a defect of Sluice, not of its user. Debug builds end at
// the first one; release builds count them and continue. See docs/runbooks/SluiceInvariantBroken.md.
struct InvariantBreach {
  std::string_view condition;  // its source text; valid until the process ends, like `file`
  std::string_view file;       // relative to the sources: "lib/scheduling/schedule_invariants.cc"
  int line = 0;
  int64_t breaches = 0;  // since the previous report, of this condition and of others; this was the first
};

}  // namespace sluice
