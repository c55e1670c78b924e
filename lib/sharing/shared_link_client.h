#pragma once

#include <cstdint>

#include "sluice/shared_link.h"

#include "lib/link/budget_lessor.h"
#include "lib/link/link_loop.h"
#include "lib/net/asio_executor.h"
#include "lib/sharing/lease_client.h"

namespace sluice {

// Connects the schedule of a link that several processes share with the daemon that divides the link: it reports the
// demand of the schedule to the daemon, and applies the leases to the schedule. At most one for each Link.
class SharedLinkClient final : public LeasedBudget {
 public:
  // As BudgetLessor::Attach.
  SharedLinkClient(LinkLoop& loop, AsioExecutor& executor, const SharedLinkOptions& options, int64_t link_bytes);
  ~SharedLinkClient() override;
  SharedLinkClient(const SharedLinkClient&) = delete;
  SharedLinkClient& operator=(const SharedLinkClient&) = delete;

  bool in_force() const override { return client_.leased(); }

 private:
  LinkLoop& loop_;
  AsioExecutor& executor_;
  LeaseClient client_;
};

}  // namespace sluice
