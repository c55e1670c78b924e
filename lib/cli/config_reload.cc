#include "lib/cli/config_reload.h"

#include <string>
#include <utility>

#include <google/protobuf/util/message_differencer.h>
#include <zlib.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"

namespace sluice {

absl::Status CheckSameButReloadable(const google::protobuf::Message& before, const google::protobuf::Message& after) {
  std::string differences;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&differences);
  if (differencer.Compare(before, after)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("needs a restart: ", absl::StrReplaceAll(absl::StripSuffix(differences, "\n"), {{"\n", "; "}})));
}

void ClearReloadable(v1::ScheduleConfig& schedule) {
  schedule.clear_policy();
  schedule.clear_budget();
  schedule.clear_budget_floor();
  schedule.clear_budget_limit();
  schedule.clear_queue_limit();
  schedule.clear_shortest_first();
  schedule.clear_paced();
  schedule.clear_queue_timeout();
  schedule.clear_worker_connections();
  for (v1::TrafficClassConfig& traffic_class : *schedule.mutable_classes()) {
    traffic_class.clear_weight();
    traffic_class.clear_queue_limit();
  }
}

uint32_t ConfigHash(const google::protobuf::Message& config) {
  const std::string bytes = config.SerializeAsString();
  return static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

ConfigReload::ConfigReload(Options options, ConfigMetrics& metrics) : options_(std::move(options)), metrics_(metrics) {
  metrics_.SetInForce(ConfigHash(*options_.in_force), absl::Now());
}

void ConfigReload::Look() {
  std::unique_ptr<Config> config(options_.in_force->New());
  if (absl::Status read = options_.read(*config); !read.ok()) return Keep(ReloadOutcome::kInvalid, read);
  if (google::protobuf::util::MessageDifferencer::Equals(*config, *options_.in_force)) {
    Log(LogLevel::kDebug, "the config is the one in force");
    return;
  }
  if (absl::Status same = options_.check(*options_.in_force, *config); !same.ok()) {
    return Keep(ReloadOutcome::kRefused, same);
  }
  if (absl::Status applied = options_.apply(*config); !applied.ok()) return Keep(ReloadOutcome::kInvalid, applied);
  options_.in_force = std::move(config);
  const uint32_t hash = ConfigHash(*options_.in_force);
  metrics_.SetInForce(hash, absl::Now());
  metrics_.CountReload(ReloadOutcome::kApplied);
  Log(LogLevel::kInfo, "config applied", {{"hash", hash}});
}

void ConfigReload::Keep(ReloadOutcome outcome, const absl::Status& reason) const {
  metrics_.CountReload(outcome);
  Log(LogLevel::kError, "config not applied; the one before stays in force", {{"reason", reason}});
}

}  // namespace sluice
