#include "sluice/schedule.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

absl::Status CheckClassName(const std::string& name) {
  const auto may_be_in_it = [](char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.'; };
  if (!name.empty() && name.size() <= TrafficClass::kMaxNameBytes &&
      std::all_of(name.begin(), name.end(), may_be_in_it)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("classes: \"", name, "\" is not a name of 1 to ",
                                                 TrafficClass::kMaxNameBytes,
                                                 " letters of a-z, A-Z, 0-9, \"_\", \"-\" and \".\""));
}

absl::Status CheckClasses(const ScheduleOptions& options) {
  const std::vector<TrafficClass>& classes = options.classes;
  if (classes.size() > TrafficClass::kMaxClasses) {
    return absl::InvalidArgumentError(
        absl::StrCat("classes: ", classes.size(), " are more than ", TrafficClass::kMaxClasses));
  }
  if (!classes.empty() && options.policy == SchedulePolicy::kBatches) {
    return absl::InvalidArgumentError(absl::StrCat("classes: the policy ",
                                                   std::string(SchedulePolicyName(options.policy)),
                                                   " does not share the link; use grants or rolling"));
  }
  for (const TrafficClass& traffic_class : classes) {
    const std::string field = absl::StrCat("classes: \"", traffic_class.name, "\": ");
    if (absl::Status status = CheckClassName(traffic_class.name); !status.ok()) return status;
    const auto has_name = [&](const TrafficClass& other) { return other.name == traffic_class.name; };
    if (std::count_if(classes.begin(), classes.end(), has_name) > 1) {
      return absl::InvalidArgumentError(absl::StrCat(field, "two classes have this name"));
    }
    // Written so that it refuses NaN.
    if (!(traffic_class.weight >= TrafficClass::kMinWeight && traffic_class.weight <= TrafficClass::kMaxWeight)) {
      return absl::InvalidArgumentError(absl::StrCat(field, "weight: ", traffic_class.weight, " is outside of ",
                                                     TrafficClass::kMinWeight, " to ", TrafficClass::kMaxWeight));
    }
    if (traffic_class.queue_limit < 1) {
      return absl::InvalidArgumentError(absl::StrCat(field, "queue_limit: ", traffic_class.queue_limit, " is below 1"));
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

absl::StatusOr<size_t> TrafficClassIndex(const std::vector<TrafficClass>& classes, std::string_view name) {
  if (name.empty()) return 0;
  const auto has_name = [name](const TrafficClass& traffic_class) { return traffic_class.name == name; };
  const auto found = std::find_if(classes.begin(), classes.end(), has_name);
  if (found != classes.end()) return static_cast<size_t>(found - classes.begin());
  const auto append_name = [](std::string* out, const TrafficClass& known) { out->append(known.name); };
  const std::string known = classes.empty() ? "no classes" : absl::StrJoin(classes, ", ", append_name);
  return absl::InvalidArgumentError(
      absl::StrCat("\"", absl::CHexEscape(std::string(name.substr(0, TrafficClass::kMaxNameBytes))),
                   "\" is not a class of the link, which has ", known));
}

absl::Status ScheduleOptions::Validate() const {
  absl::Status status = profile.Validate();
  status.Update(CheckAtLeastOne("budget_bytes", budget_bytes));
  status.Update(CheckAtLeastOne("queue_limit", queue_limit));
  status.Update(CheckAtLeastOne("queue_bytes", queue_bytes));
  status.Update(CheckAtLeastOne("ready_bytes", ready_bytes));
  if (record_overhead_bytes < 0) {
    status.Update(
        absl::InvalidArgumentError(absl::StrCat("record_overhead_bytes: ", record_overhead_bytes, " is below 0")));
  }
  if (paced && policy == SchedulePolicy::kBatches) {
    status.Update(
        absl::InvalidArgumentError("paced: the slots of the policy batches are its pace; use grants or rolling"));
  }
  status.Update(CheckAboveZero("queue_timeout", queue_timeout));
  status.Update(CheckAboveZero("stall_timeout", stall_timeout));
  status.Update(CheckClasses(*this));
  return status;
}

}  // namespace sluice
