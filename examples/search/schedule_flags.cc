#include "examples/search/schedule_flags.h"

#include <cstdint>

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "lib/cli/link_profile_flags.h"
#include "lib/cli/units.h"

namespace sluice::examples::search {

void ScheduleFlags::Add(CLI::App& app, FanOutOptions& fan_out) {
  app.add_option("--policy", policy_,
                 "SchedulePolicy of the schedule: unscheduled, batches, rolling or grants. Default grants");
  app.add_option("--budget", budget_text_, "Bytes that may be in flight. Default: the buffer of the link");
  app.add_option("--hedge_after", hedge_text_,
                 "Also ask a replica when a worker's answer is not ready after this time");
  app.add_option("--hedge_quantile", fan_out.hedge_after_quantile,
                 "Also ask a replica after this quantile of the times of earlier answers, such as 0.95");
  app.add_option("--hedge_ratio", fan_out.hedge_ratio, "Maximum share of the requests that are hedges. Default 0.1");
  AddLinkProfileFlags(app, link_);
}

absl::Status ScheduleFlags::Parse(ScheduleOptions& schedule, FanOutOptions& fan_out) const {
  const absl::StatusOr<LinkProfile> profile = ParseLinkProfile(link_);
  if (!profile.ok()) return profile.status();
  schedule.profile = *profile;
  if (!policy_.empty()) {
    const absl::StatusOr<SchedulePolicy> policy = ParseSchedulePolicy(policy_);
    if (!policy.ok()) return absl::InvalidArgumentError(absl::StrCat("policy: ", policy.status().message()));
    schedule.policy = *policy;
  }
  int64_t budget_bytes = 0;
  absl::Status status = ParseField("budget", budget_text_, ParseByteSize, budget_bytes);
  if (!budget_text_.empty()) schedule.budget_bytes = budget_bytes;
  absl::Duration hedge_after;
  status.Update(ParseField("hedge_after", hedge_text_, ParseDuration, hedge_after));
  if (!hedge_text_.empty()) fan_out.hedge_after = hedge_after;
  return status;
}

}  // namespace sluice::examples::search
