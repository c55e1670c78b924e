#include <atomic>
#include <cstdint>

#include "absl/status/status.h"

// Debian's abseil is not instrumented. ThreadSanitizer therefore does not see that one thread destroys an absl::Status
// after another thread has released it, and reports a race at the end of every shared status. In programs built with
// ThreadSanitizer, this definition of abseil's only decrementing function replaces the definition in the shared
// library. Rejected: a suppression, which would also hide Sluice's own races on statuses.
namespace absl {
ABSL_NAMESPACE_BEGIN

void Status::UnrefNonInlined(uintptr_t rep) {
  status_internal::StatusRep* const shared = RepToPointer(rep);
  if (shared->ref.fetch_sub(1, std::memory_order_acq_rel) == 1) delete shared;
}

ABSL_NAMESPACE_END
}  // namespace absl
