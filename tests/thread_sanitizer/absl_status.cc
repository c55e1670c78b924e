#include <atomic>
#include <cstdint>

#include "absl/status/status.h"

// Debian's abseil is not instrumented, so ThreadSanitizer does not see that one thread destroys an absl::Status after
// another has let go of it: it takes the end of every shared status for a race. This definition of the one function of
// abseil that counts down stands before that of the shared library in programs that are built with ThreadSanitizer.
// Rejected: a suppression, which would hide our own races on statuses as well.
namespace absl {
ABSL_NAMESPACE_BEGIN

void Status::UnrefNonInlined(uintptr_t rep) {
  status_internal::StatusRep* const shared = RepToPointer(rep);
  if (shared->ref.fetch_sub(1, std::memory_order_acq_rel) == 1) delete shared;
}

ABSL_NAMESPACE_END
}  // namespace absl
