#include "lib/cli/link_options.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "sluice/shared_link.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/cli/link_log.h"
#include "lib/cli/link_profile_flags.h"
#include "lib/cli/units.h"

namespace sluice {
namespace {

absl::Status ParseBudgetBound(std::string_view field, const std::string& text, std::optional<int64_t>& bound) {
  if (text.empty()) return absl::OkStatus();
  int64_t bytes = 0;
  absl::Status parsed = ParseField(field, text, ParseByteSize, bytes);
  if (parsed.ok()) bound = bytes;
  return parsed;
}

absl::Status ParseBudget(const LinkConfig& config, Link::BudgetOptions& options) {
  options.buffer_known = !config.link.buffer().empty();
  absl::Status status = ParseBudgetBound("schedule.budget_floor", config.schedule.budget_floor(), options.floor_bytes);
  status.Update(ParseBudgetBound("schedule.budget_limit", config.schedule.budget_limit(), options.limit_bytes));
  return status;
}

absl::Status ParseSharedLink(const LinkConfig& config, Link::Options& options) {
  if (config.shared_link == nullptr) return absl::OkStatus();
  const v1::SharedLinkConfig& shared = *config.shared_link;
  SharedLinkOptions share{.on_state = LogLease};
  share.socket = shared.socket();
  share.application = shared.application().empty() ? config.application : shared.application();
  if (shared.has_weight()) share.weight = shared.weight();
  if (shared.has_daemon_uid()) share.daemon_uid = shared.daemon_uid();
  options.share = ShareLink(std::move(share));
  if (!options.budget.buffer_known && !options.schedule.budget_bytes.has_value()) {
    return absl::InvalidArgumentError("shared_link: the budget of the whole link is not known; give link.buffer");
  }
  return absl::OkStatus();
}

absl::Status ParseOutlierDetection(const v1::OutlierDetectionConfig& config, OutlierDetection& options) {
  if (config.has_consecutive_errors()) options.consecutive_errors = config.consecutive_errors();
  if (config.has_failure_percentage_threshold()) {
    options.failure_percentage_threshold = config.failure_percentage_threshold();
  }
  if (config.has_latency_factor()) options.latency_factor = config.latency_factor();
  if (config.has_request_volume()) options.request_volume = config.request_volume();
  if (config.has_max_ejection_percent()) options.max_ejection_percent = config.max_ejection_percent();
  const std::string field = "schedule.outlier_detection.";
  absl::Status status = ParseField(field + "interval", config.interval(), ParseDuration, options.interval);
  status.Update(
      ParseField(field + "base_ejection_time", config.base_ejection_time(), ParseDuration, options.base_ejection_time));
  status.Update(
      ParseField(field + "max_ejection_time", config.max_ejection_time(), ParseDuration, options.max_ejection_time));
  if (absl::Status valid = options.Validate(); !valid.ok()) {
    status.Update(absl::InvalidArgumentError(absl::StrCat(field, valid.message())));
  }
  return status;
}

absl::Status ParseSchedule(const v1::ScheduleConfig& config, ScheduleOptions& options) {
  if (!config.policy().empty()) {
    absl::StatusOr<SchedulePolicy> policy = ParseSchedulePolicy(config.policy());
    if (!policy.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("schedule.policy: ", policy.status().message()));
    }
    options.policy = *policy;
  }
  if (!config.budget().empty()) {
    int64_t budget_bytes = 0;
    absl::Status parsed = ParseField("schedule.budget", config.budget(), ParseByteSize, budget_bytes);
    if (!parsed.ok()) return parsed;
    options.budget_bytes = budget_bytes;
  }
  for (const v1::TrafficClassConfig& traffic_class : config.classes()) {
    TrafficClass& parsed_class = options.classes.emplace_back();
    parsed_class.name = traffic_class.name();
    if (traffic_class.has_weight()) parsed_class.weight = traffic_class.weight();
    if (traffic_class.has_queue_limit()) parsed_class.queue_limit = traffic_class.queue_limit();
  }
  if (config.has_shortest_first()) options.shortest_first = config.shortest_first();
  if (config.has_paced()) options.paced = config.paced();
  if (config.has_queue_limit()) options.queue_limit = config.queue_limit();
  absl::Status parsed =
      ParseField("schedule.queue_timeout", config.queue_timeout(), ParseDuration, options.queue_timeout);
  parsed.Update(options.Validate());
  return parsed;
}

}  // namespace

absl::Status SetTrafficClasses(const std::vector<std::string>& list, v1::ScheduleConfig& schedule) {
  schedule.clear_classes();
  for (const std::string& text : list) {
    const size_t end = text.find('=');
    double weight = 0;
    if (end == std::string::npos || !absl::SimpleAtod(text.substr(end + 1), &weight)) {
      return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not NAME=WEIGHT"));
    }
    v1::TrafficClassConfig& traffic_class = *schedule.add_classes();
    traffic_class.set_name(text.substr(0, end));
    traffic_class.set_weight(weight);
  }
  return absl::OkStatus();
}

absl::StatusOr<Link::Options> ParseLinkOptions(const LinkConfig& config) {
  absl::StatusOr<LinkProfile> profile = ParseLinkProfile(config.link);
  if (!profile.ok()) return profile.status();
  Link::Options options;
  options.schedule.profile = *profile;
  absl::Status status = ParseSchedule(config.schedule, options.schedule);
  if (config.schedule.has_worker_connections()) options.worker_connections = config.schedule.worker_connections();
  status.Update(ParseOutlierDetection(config.schedule.outlier_detection(), options.outlier_detection));
  status.Update(ParseBudget(config, options.budget));
  status.Update(ParseSharedLink(config, options));
  if (status.ok()) status.Update(Link::Validate(options));
  if (!status.ok()) return status;
  return options;
}

}  // namespace sluice
