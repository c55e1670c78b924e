#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"

namespace sluice {

class AsioExecutor;
class LinkLoop;

// The budget of one Link while it is leased. The link creates and destroys it, not on the link's thread.
class LeasedBudget {
 public:
  virtual ~LeasedBudget() = default;
  virtual bool in_force() const = 0;  // thread-safe
};

// Where a link leases its budget. Immutable, and shared by the copies of Link::Options. lib/sharing implements it, so
// that a link does not depend on how processes share one.
class BudgetLessor {
 public:
  virtual ~BudgetLessor() = default;
  // Returns InvalidArgument that names the field, such as "share.weight".
  virtual absl::Status Validate() const = 0;
  // Whether both lease the same budget in the same way.
  virtual bool SameAs(const BudgetLessor& other) const = 0;
  // From now on nothing leaves without a lease. `link_bytes` is the budget of the whole link, `executor` that of the
  // loop. Both must outlive the result.
  virtual std::unique_ptr<LeasedBudget> Attach(LinkLoop& loop, AsioExecutor& executor, int64_t link_bytes) const = 0;
};

}  // namespace sluice
