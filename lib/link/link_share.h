#pragma once

#include <functional>
#include <string>

#include "sluice/link.h"

#include "absl/status/status.h"
#include "lib/link/asio_executor.h"
#include "lib/link/link_core.h"
#include "lib/sharing/lease_client.h"

namespace sluice {

// A link that this process shares with others of its host: the schedule goes by leases, and the daemon that divides the
// link hears what the schedule wants. One a Link at most; made and destroyed by the owner of the link, off its thread.
class LinkShare {
 public:
  // InvalidArgument that names the field; for options whose schedule is valid.
  static absl::Status Validate(const Link::Options& options);

  // Nothing leaves without a lease from now on. `link_bytes` is the budget of the whole link, `executor` that of
  // the core. Both outlive it.
  LinkShare(LinkCore& core, AsioExecutor& executor, const SharedLink& options, int64_t link_bytes);
  ~LinkShare();
  LinkShare(const LinkShare&) = delete;
  LinkShare& operator=(const LinkShare&) = delete;

  bool leased() const { return client_.leased(); }

 private:
  LinkCore& core_;
  AsioExecutor& executor_;
  LeaseClient client_;
};

}  // namespace sluice
