#pragma once

#include <cstdint>
#include <optional>

#include "sluice/invariant_breach.h"

namespace sluice {

// The breached invariants of one state machine, which is pure: it cannot log. The owner of its thread takes the
// breaches after each event, counts and logs them. Not thread-safe.
class Breaches {
 public:
  enum class Response { kAbort, kCount };

  Breaches();  // kAbort, or kCount if NDEBUG is defined
  explicit Breaches(Response response) : response_(response) {}

  // Reports a breach; the texts must be literals. Called by SLUICE_HOLDS. Returns false.
  [[gnu::cold]] bool Add(const char* condition, const char* file, int line);
  // Returns the first breach since the last Take, and their number. Empty if there was none.
  std::optional<InvariantBreach> Take();

 private:
  Response response_;
  InvariantBreach first_;  // its `breaches` is the number of breaches since the last Take
};

}  // namespace sluice

// Checks an invariant, also in release builds, and returns whether it holds. For conditions that cost as little as a
// comparison. Use assert for more expensive conditions, and for what the caller of a function in this room promises.
#define SLUICE_HOLDS(breaches, ...) (static_cast<bool>(__VA_ARGS__) || (breaches).Add(#__VA_ARGS__, __FILE__, __LINE__))
