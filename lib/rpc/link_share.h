#pragma once

#include <functional>
#include <string>

#include "sluice/link.h"

#include "absl/status/status.h"
#include "lib/rpc/link_driver.h"
#include "lib/sharing/lease_client.h"

namespace sluice {

// A link that this process shares with others of its host: the schedule goes by leases, and whoever divides the link
// hears what the schedule wants. One a Link at most; thread-safe.
class LinkShare {
 public:
  // InvalidArgument that names the field; for options whose schedule is valid.
  static absl::Status Validate(const Link::Options& options);

  // From now on nothing leaves without a lease. `link_bytes` is the budget of the whole link. The driver outlives it.
  LinkShare(LinkDriver& driver, const SharedLink& options, int64_t link_bytes);
  ~LinkShare();  // not on the IO thread
  LinkShare(const LinkShare&) = delete;
  LinkShare& operator=(const LinkShare&) = delete;

  bool leased() const { return client_.leased(); }

 private:
  LinkDriver& driver_;
  LeaseClient client_;
};

}  // namespace sluice
