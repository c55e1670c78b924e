#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "absl/status/status.h"
#include "lib/scheduling/link_schedule.h"

namespace boost::asio {
class io_context;
}

namespace sluice {

// Returns whether to report `now` at once instead of with the next regular report. It does if the client or one of
// its classes became busy or idle, if the client has drained to a smaller lease, or waits for a larger lease. With
// `by_block` it also does if a block has ended.
bool IsUrgent(const LinkDemand& reported, const LinkDemand& now, bool by_block);

// The process's side of a shared link: it receives leases from sluice-link, applies them, and reports the demand of the
// process. There is one for each link. It reconnects whenever it loses the daemon; without a daemon the process uses
// its safe share.
//
// No call waits for it: OnDemand compares a few numbers, and all other work happens on the thread of the context, the
// IO thread.
class LeaseClient {
 public:
  struct Options {
    std::string socket;
    std::string application;
    double weight = 1;
    std::vector<std::string> classes;  // names of the classes of the schedule; may be empty
    int64_t start_bytes = 1;           // may be in flight before the first daemon appears; at least 1
    int64_t link_bytes = 1;            // the budget of the link until the first lease; at least start_bytes
    std::optional<uid_t> daemon_uid;   // as SharedLinkOptions::daemon_uid
    // Called on the IO thread; `apply` also in the constructor.
    std::function<LinkDemand()> demand;
    std::function<void(const BudgetLease&)> apply;
    std::function<void(const absl::Status&)> on_state;  // OK: a lease is in force; otherwise the reason. May be null
  };
  // Returns InvalidArgument that names the field, the value and the bound.
  static absl::Status Validate(const std::string& socket, const std::string& application, double weight);

  // Nothing may be in flight until a lease arrives, or until it is clear that no daemon is running.
  LeaseClient(boost::asio::io_context& context, Options options);
  // No callback of Options is called after this. Do not call it on the IO thread, which must still run.
  ~LeaseClient();
  LeaseClient(const LeaseClient&) = delete;
  LeaseClient& operator=(const LeaseClient&) = delete;

  // Call it after every event of the schedule, on any thread.
  void OnDemand(const LinkDemand& demand);
  bool leased() const;

 private:
  class Session;

  boost::asio::io_context& context_;
  const std::shared_ptr<Session> session_;
};

}  // namespace sluice
