#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "sluice/link_schedule.h"

#include "absl/status/status.h"

namespace boost::asio {
class io_context;
}

namespace sluice {

// True where the process that divides the link should hear of `now` at once, and not with the next regular report: the
// client became busy or idle, has drained to a smaller lease, or waits for a larger one; `by_block`: a block has ended.
bool IsUrgent(const LinkDemand& reported, const LinkDemand& now, bool by_block);

// A process' side of a shared link: takes leases from sluice-link, applies them, and says what the process wants. One a
// link. It connects by itself, again and again; without a daemon the process goes by its safe share.
//
// Nothing here is on the way of a call: OnDemand compares a few numbers, everything else is on the IO thread.
class LeaseClient {
 public:
  struct Options {
    std::string socket;
    std::string application;
    double weight = 1;
    int64_t start_bytes = 1;  // that may be in flight as long as no daemon was ever there; at least 1
    int64_t link_bytes = 1;   // the budget of the link, until the daemon says it; at least start_bytes
    // Called on the IO thread; `apply` also in the constructor.
    std::function<LinkDemand()> demand;
    std::function<void(const BudgetLease&)> apply;
    std::function<void(const absl::Status&)> on_state;  // OK: a lease is in force; else why none is. May be null
  };
  // InvalidArgument that names the field, the value and the bound.
  static absl::Status Validate(const std::string& socket, const std::string& application, double weight);

  // With nothing that may be in flight, until there is a lease or it is clear that there is no daemon.
  LeaseClient(boost::asio::io_context& context, Options options);
  // After this nothing of Options is called. Not on the IO thread, which has to run still.
  ~LeaseClient();
  LeaseClient(const LeaseClient&) = delete;
  LeaseClient& operator=(const LeaseClient&) = delete;

  // After every event of the schedule, on any thread, with its lock held or not.
  void OnDemand(const LinkDemand& demand);
  bool leased() const;

 private:
  class Session;

  boost::asio::io_context& context_;
  const std::shared_ptr<Session> session_;
};

}  // namespace sluice
