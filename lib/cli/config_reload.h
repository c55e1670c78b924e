#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>

#include <google/protobuf/message.h>

#include "sluice/v1/config.pb.h"

#include "absl/status/status.h"
#include "lib/cli/logging.h"
#include "lib/cli/program.h"
#include "lib/telemetry/config_metrics.h"

namespace sluice {

// Returns FailedPrecondition that names the fields, with their old and new values, if two configs differ. The caller
// has cleared the reloadable fields of both.
absl::Status CheckSameButReloadable(const google::protobuf::Message& before, const google::protobuf::Message& after);

// Clears the schedule fields that every program with a link can change while it runs: all except the names of the
// classes.
void ClearReloadable(v1::ScheduleConfig& schedule);

// Returns a hash of a config. It is the same for two processes of one version with the same config.
uint32_t ConfigHash(const google::protobuf::Message& config);

// Applies a changed config of a program, all of it or nothing, and reports the outcome to the log and the metrics.
// There is one for each process. Not thread-safe.
class ConfigReload {
 public:
  using Config = google::protobuf::Message;
  struct Options {
    std::unique_ptr<Config> in_force;
    std::function<absl::Status(Config& config)> read;  // reads into an empty config
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

// Passes the options of a config to `apply`, and sets the log level if `apply` succeeds. Returns the errors of `parse`,
// of ParseLogLevel and of `apply`; after an error nothing has changed.
template <class Config, class Parse, class Apply>
absl::Status ApplyConfig(const Config& config, Parse parse, Apply apply) {
  const auto options = parse(config);
  if (!options.ok()) return options.status();
  if (absl::Status known = ParseLogLevel(config.log_level()).status(); !known.ok()) return known;
  if (absl::Status applied = apply(*options); !applied.ok()) return applied;
  // Set the log level last: a refused config must not change it.
  return SetLogLevel(config.log_level());
}

// Makes the options of a program's ConfigReload. `Flags` holds the command line's values: it has AddTo(CLI::App&) and a
// `config`. `check` is as in ConfigReload::Options, `parse` and `apply` are as in ApplyConfig.
template <class Flags, class Check, class Parse, class Apply>
ConfigReload::Options ReloadOptions(const Flags& in_force, int argc, const char* const* argv, Check check, Parse parse,
                                    Apply apply) {
  using Typed = std::decay_t<decltype(in_force.config)>;
  const auto typed = [](const ConfigReload::Config& config) -> const Typed& {
    return static_cast<const Typed&>(config);  // all configs of one ConfigReload are of one type
  };
  return {.in_force = std::make_unique<Typed>(in_force.config),
          .read =
              [argc, argv](ConfigReload::Config& config) {
                Flags flags;
                absl::Status status = ReadConfigAgain(
                    argc, argv, [&](CLI::App& app) { flags.AddTo(app); }, flags.config);
                config.CopyFrom(flags.config);
                return status;
              },
          .check = [typed, check](const ConfigReload::Config& before,
                                  const ConfigReload::Config& after) { return check(typed(before), typed(after)); },
          .apply = [typed, parse,
                    apply](const ConfigReload::Config& config) { return ApplyConfig(typed(config), parse, apply); }};
}

}  // namespace sluice
