#include "aggregator/config_reload.h"

#include <string>
#include <utility>

#include <google/protobuf/util/message_differencer.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "lib/cli/logging.h"
#include "lib/stripe/crc32c.h"

namespace sluice {
namespace {

// What a process cannot change while it runs.
v1::AggregatorConfig WithoutReloadable(v1::AggregatorConfig config) {
  config.clear_workers();
  config.clear_link();
  config.clear_sru_timeout();
  config.clear_block_timeout();
  config.clear_attempts();
  config.clear_segment_bytes();
  config.clear_log_level();
  config.clear_connect_timeout();
  // A schedule that is not given is one without a policy.
  config.mutable_schedule()->clear_budget();
  config.mutable_schedule()->clear_budget_floor();
  config.mutable_schedule()->clear_budget_limit();
  config.mutable_schedule()->clear_queue_limit();
  return config;
}

}  // namespace

absl::Status CheckReloadable(const v1::AggregatorConfig& before, const v1::AggregatorConfig& after) {
  std::string differences;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&differences);
  if (differencer.Compare(WithoutReloadable(before), WithoutReloadable(after))) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("needs a restart: ", absl::StrReplaceAll(absl::StripSuffix(differences, "\n"), {{"\n", "; "}})));
}

uint32_t ConfigHash(const v1::AggregatorConfig& config) {
  return Crc32c(config.SerializeAsString());
}

ConfigReload::ConfigReload(Options options, ConfigMetrics& metrics) : options_(std::move(options)), metrics_(metrics) {
  metrics_.SetInForce(ConfigHash(options_.in_force), absl::Now());
}

void ConfigReload::Look() {
  absl::StatusOr<v1::AggregatorConfig> config = options_.read();
  if (!config.ok()) return Keep(ReloadOutcome::kInvalid, config.status());
  if (google::protobuf::util::MessageDifferencer::Equals(*config, options_.in_force)) {
    Log(LogLevel::kDebug, "the config is the one in force");
    return;
  }
  if (absl::Status same = CheckReloadable(options_.in_force, *config); !same.ok()) {
    return Keep(ReloadOutcome::kRefused, same);
  }
  if (absl::Status applied = Apply(*config); !applied.ok()) return Keep(ReloadOutcome::kInvalid, applied);
  options_.in_force = *std::move(config);
  const uint32_t hash = ConfigHash(options_.in_force);
  metrics_.SetInForce(hash, absl::Now());
  metrics_.CountReload(ReloadOutcome::kApplied);
  Log(LogLevel::kInfo, "config applied", {{"hash", hash}});
}

// The log level last: it has no effect on a config that is refused.
absl::Status ConfigReload::Apply(const v1::AggregatorConfig& config) const {
  const absl::StatusOr<AggregatorOptions> options = ParseAggregatorConfig(config);
  if (!options.ok()) return options.status();
  if (absl::Status known = ParseLogLevel(config.log_level()).status(); !known.ok()) return known;
  if (absl::Status applied = options_.apply(*options); !applied.ok()) return applied;
  return SetLogLevel(config.log_level());
}

void ConfigReload::Keep(ReloadOutcome outcome, const absl::Status& reason) const {
  metrics_.CountReload(outcome);
  Log(LogLevel::kError, "config not applied; the one before stays in force", {{"reason", reason}});
}

}  // namespace sluice
