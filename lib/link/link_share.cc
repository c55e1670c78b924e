#include "lib/link/link_share.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

// While nobody divides the link, so many processes may share it without harm.
constexpr int64_t kStartShare = 8;

int64_t StartBytes(const SharedLink& options, int64_t link_bytes) {
  return std::min(options.start_bytes.value_or(std::max<int64_t>(link_bytes / kStartShare, 1)), link_bytes);
}

}  // namespace

absl::Status LinkShare::Validate(const Link::Options& options) {
  if (!options.share.has_value()) return absl::OkStatus();
  const SharedLink& share = *options.share;
  if (absl::Status valid = LeaseClient::Validate(share.socket, share.application, share.weight); !valid.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("share.", valid.message()));
  }
  if (share.start_bytes.value_or(1) < 1) {
    return absl::InvalidArgumentError(absl::StrCat("share.start_bytes: ", *share.start_bytes, " is below 1"));
  }
  if (options.schedule.discipline == Discipline::kUnscheduled) {
    return absl::InvalidArgumentError("share: a link that is shared needs a discipline other than unscheduled");
  }
  if (options.budget.floor_bytes.has_value() || options.budget.limit_bytes.has_value()) {
    return absl::InvalidArgumentError("share: the budget is leased; give no budget floor and no budget limit");
  }
  return absl::OkStatus();
}

// The lease client applies a lease in its constructor already, on the caller's thread.
LinkShare::LinkShare(LinkCore& core, AsioExecutor& executor, const SharedLink& options, int64_t link_bytes)
    : core_(core),
      executor_(executor),
      client_(executor.context(), {.socket = options.socket,
                                   .application = options.application,
                                   .weight = options.weight,
                                   .start_bytes = StartBytes(options, link_bytes),
                                   .link_bytes = link_bytes,
                                   .demand = [&core] { return core.Demand(); },
                                   .apply =
                                       [&core](const BudgetLease& lease) {
                                         core.executor().Post([&core, lease] { core.SetLease(lease).IgnoreError(); });
                                       },
                                   .on_state = options.on_state}) {
  executor_.Post([this] { core_.SetDemandWatcher([this](const LinkDemand& demand) { client_.OnDemand(demand); }); });
}

LinkShare::~LinkShare() {
  executor_.Await([this] { core_.SetDemandWatcher(nullptr); });
}

}  // namespace sluice
