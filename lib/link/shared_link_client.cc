#include "lib/link/shared_link_client.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

// While nobody divides the link, so many processes may share it without harm.
constexpr int64_t kStartShare = 8;

int64_t StartBytes(const SharedLinkOptions& options, int64_t link_bytes) {
  return std::min(options.start_bytes.value_or(std::max<int64_t>(link_bytes / kStartShare, 1)), link_bytes);
}

}  // namespace

absl::Status SharedLinkClient::Validate(const Link::Options& options) {
  if (!options.share.has_value()) return absl::OkStatus();
  const SharedLinkOptions& share = *options.share;
  if (absl::Status valid = LeaseClient::Validate(share.socket, share.application, share.weight); !valid.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("share.", valid.message()));
  }
  if (share.start_bytes.value_or(1) < 1) {
    return absl::InvalidArgumentError(absl::StrCat("share.start_bytes: ", *share.start_bytes, " is below 1"));
  }
  if (options.schedule.policy == SchedulePolicy::kUnscheduled) {
    return absl::InvalidArgumentError("share: a link that is shared needs a policy other than unscheduled");
  }
  if (options.budget.floor_bytes.has_value() || options.budget.limit_bytes.has_value()) {
    return absl::InvalidArgumentError("share: the budget is leased; give no budget floor and no budget limit");
  }
  return absl::OkStatus();
}

// The lease client applies a lease in its constructor already, on the caller's thread.
SharedLinkClient::SharedLinkClient(LinkLoop& loop, AsioExecutor& executor, const SharedLinkOptions& options,
                                   int64_t link_bytes)
    : loop_(loop),
      executor_(executor),
      client_(executor.context(), {.socket = options.socket,
                                   .application = options.application,
                                   .weight = options.weight,
                                   .start_bytes = StartBytes(options, link_bytes),
                                   .link_bytes = link_bytes,
                                   .demand = [&loop] { return loop.Demand(); },
                                   .apply =
                                       [&loop](const BudgetLease& lease) {
                                         loop.executor().Post([&loop, lease] { loop.SetLease(lease).IgnoreError(); });
                                       },
                                   .on_state = options.on_state}) {
  executor_.Post([this] { loop_.SetDemandWatcher([this](const LinkDemand& demand) { client_.OnDemand(demand); }); });
}

SharedLinkClient::~SharedLinkClient() {
  executor_.Await([this] { loop_.SetDemandWatcher(nullptr); });
}

}  // namespace sluice
