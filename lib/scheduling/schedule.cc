#include "sluice/schedule.h"

#include <optional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice {
namespace {

absl::Status CheckAtLeastOne(absl::string_view field, std::optional<int64_t> value) {
  if (value.value_or(1) >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", *value, " is below 1"));
}

absl::Status CheckAboveZero(absl::string_view field, absl::Duration value) {
  if (value > absl::ZeroDuration()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", absl::FormatDuration(value), " is not above 0"));
}

absl::Status CheckClasses(const ScheduleOptions& options) {
  const std::vector<TrafficClass>& classes = options.classes;
  if (classes.size() > TrafficClass::kMaxClasses) {
    return absl::InvalidArgumentError(
        absl::StrCat("classes: ", classes.size(), " are more than ", TrafficClass::kMaxClasses));
  }
  const bool shares = options.policy == SchedulePolicy::kGrants || options.policy == SchedulePolicy::kRolling;
  if (!classes.empty() && !shares) {
    return absl::InvalidArgumentError(absl::StrCat("classes: the policy ",
                                                   std::string(SchedulePolicyName(options.policy)),
                                                   " does not share the link; use grants or rolling"));
  }
  absl::flat_hash_set<absl::string_view> names;
  for (const TrafficClass& traffic_class : classes) {
    const std::string field = absl::StrCat("classes: \"", traffic_class.name, "\": ");
    if (traffic_class.name.empty()) return absl::InvalidArgumentError("classes: a name is empty");
    if (!names.insert(traffic_class.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(field, "two classes have this name"));
    }
    // Written so that it refuses NaN.
    if (!(traffic_class.weight >= TrafficClass::kMinWeight && traffic_class.weight <= TrafficClass::kMaxWeight)) {
      return absl::InvalidArgumentError(absl::StrCat(field, "weight: ", traffic_class.weight, " is outside of ",
                                                     TrafficClass::kMinWeight, " to ", TrafficClass::kMaxWeight));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view SchedulePolicyName(SchedulePolicy policy) {
  switch (policy) {
    case SchedulePolicy::kUnscheduled:
      return "unscheduled";
    case SchedulePolicy::kBatches:
      return "batches";
    case SchedulePolicy::kRolling:
      return "rolling";
    case SchedulePolicy::kGrants:
      return "grants";
  }
  return "unknown";
}

absl::StatusOr<SchedulePolicy> ParseSchedulePolicy(std::string_view name) {
  for (const SchedulePolicy policy :
       {SchedulePolicy::kUnscheduled, SchedulePolicy::kBatches, SchedulePolicy::kRolling, SchedulePolicy::kGrants}) {
    if (name == SchedulePolicyName(policy)) return policy;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("policy: \"", std::string(name), "\" is not known; use unscheduled, batches, rolling or grants"));
}

absl::Status ScheduleOptions::Validate() const {
  absl::Status status = profile.Validate();
  status.Update(CheckAtLeastOne("budget_bytes", budget_bytes));
  status.Update(CheckAtLeastOne("queue_limit", queue_limit));
  if (record_overhead_bytes < 0) {
    status.Update(
        absl::InvalidArgumentError(absl::StrCat("record_overhead_bytes: ", record_overhead_bytes, " is below 0")));
  }
  status.Update(CheckAboveZero("queue_timeout", queue_timeout));
  status.Update(CheckAboveZero("stall_timeout", stall_timeout));
  status.Update(CheckClasses(*this));
  return status;
}

}  // namespace sluice
