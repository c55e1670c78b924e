#pragma once

#include <functional>
#include <string>

#include "sluice/link.h"

#include "absl/status/status.h"
#include "lib/link/link_loop.h"
#include "lib/net/asio_executor.h"
#include "lib/sharing/lease_client.h"

namespace sluice {

// Connects the schedule of a link that several processes share with the daemon that divides the link: the daemon is
// told what the schedule wants, and the schedule follows its leases. At most one for each Link. The owner of the link
// creates and destroys it, not on the link's thread.
class SharedLinkClient {
 public:
  // Returns InvalidArgument that names the field. The schedule of the options must be valid.
  static absl::Status Validate(const Link::Options& options);

  // From now on nothing leaves without a lease. `link_bytes` is the budget of the whole link, `executor` that of the
  // loop. The loop and the executor must outlive the share.
  SharedLinkClient(LinkLoop& loop, AsioExecutor& executor, const SharedLinkOptions& options, int64_t link_bytes);
  ~SharedLinkClient();
  SharedLinkClient(const SharedLinkClient&) = delete;
  SharedLinkClient& operator=(const SharedLinkClient&) = delete;

  bool leased() const { return client_.leased(); }

 private:
  LinkLoop& loop_;
  AsioExecutor& executor_;
  LeaseClient client_;
};

}  // namespace sluice
