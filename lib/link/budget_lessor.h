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

// A source of budget leases for a link. Immutable, and shared by the copies of Link::Options. lib/sharing implements
// it, so a link does not depend on the way in which processes share a budget.
class BudgetLessor {
 public:
  virtual ~BudgetLessor() = default;
  // Returns InvalidArgument that names the field, such as "share.weight".
  virtual absl::Status Validate() const = 0;
  // Returns true if both lease the same budget in the same way.
  virtual bool SameAs(const BudgetLessor& other) const = 0;
  // From now on the link sends nothing without a lease. `link_bytes` is the budget of the whole link, `executor` is the
  // executor of the loop. The loop and the executor must outlive the result.
  virtual std::unique_ptr<LeasedBudget> Attach(LinkLoop& loop, AsioExecutor& executor, int64_t link_bytes) const = 0;
};

}  // namespace sluice
