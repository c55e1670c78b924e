#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <google/protobuf/message.h>

#include "absl/status/status.h"
#include "lib/telemetry/config_metrics.h"

namespace sluice {

// Returns FailedPrecondition that names the fields, with their old and new values, if two configs differ. Both have
// been rid of what a process can change while it runs.
absl::Status CheckSameButReloadable(const google::protobuf::Message& before, const google::protobuf::Message& after);

// Returns a hash of a config. It is the same for two processes of one version with the same config.
uint32_t ConfigHash(const google::protobuf::Message& config);

// Takes over what has changed in the config of a program, all of it or nothing, and tells the log and the metrics.
// There is one for each process. Not thread-safe.
class ConfigReload {
 public:
  using Config = google::protobuf::Message;
  struct Options {
    std::unique_ptr<Config> in_force;
    std::function<absl::Status(Config& config)> read;  // into an empty one
    // Returns FailedPrecondition if `after` needs a restart: see CheckSameButReloadable.
    std::function<absl::Status(const Config& before, const Config& after)> check;
    std::function<absl::Status(const Config& config)> apply;
  };
  // The metrics must outlive it.
  ConfigReload(Options options, ConfigMetrics& metrics);

  void Look();

 private:
  void Keep(ReloadOutcome outcome, const absl::Status& reason) const;

  Options options_;
  ConfigMetrics& metrics_;
};

}  // namespace sluice
