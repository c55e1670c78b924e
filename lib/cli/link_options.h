#pragma once

#include <functional>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "sluice/link.h"
#include "sluice/v1/config.pb.h"
#include "sluice/v1/link_profile.pb.h"

#include "absl/status/statusor.h"
#include "lib/cli/link_profile_flags.h"
#include "lib/cli/program.h"

namespace sluice {

// The parts of a config that describe the link.
struct LinkConfig {
  const v1::LinkProfile& link;
  const v1::ScheduleConfig& schedule;
  const v1::SharedLinkConfig* shared_link = nullptr;  // null: the link is not shared
  std::optional<bool> watch_connections;
  std::string application;  // name of this process for sluice-link, if the config has none
};

// Makes the options of the link, which have passed Link::Validate. Returns InvalidArgument that names the field as in
// the config file.
absl::StatusOr<Link::Options> ParseLinkOptions(const LinkConfig& config);

// The same for the config of a program with these fields.
template <class Config>
absl::StatusOr<Link::Options> ParseLinkOptions(const Config& config, const std::string& application) {
  return ParseLinkOptions(LinkConfig{
      .link = config.link(),
      .schedule = config.schedule(),
      .shared_link = config.has_shared_link() ? &config.shared_link() : nullptr,
      .watch_connections = config.has_watch_connections() ? std::optional(config.watch_connections()) : std::nullopt,
      .application = application});
}

void AddScheduleFlags(CLI::App& app, const std::function<v1::ScheduleConfig*()>& config);
void AddSharedLinkFlags(CLI::App& app, const std::function<v1::SharedLinkConfig*()>& config,
                        const std::string& application);

// Adds the flags for all these fields. Parsing writes only flags that are given; `config` must outlive parsing.
template <class Config>
void AddLinkFlags(CLI::App& app, Config& config, const std::string& application) {
  AddScheduleFlags(app, [&config] { return config.mutable_schedule(); });
  AddSharedLinkFlags(
      app, [&config] { return config.mutable_shared_link(); }, application);
  app.add_option_function<bool>(
      "--watch_connections", [&config](bool value) { config.set_watch_connections(value); },
      "Look at the TCP connections to infer losses and adapt the budget. Default true");
  AddLinkProfileFlags(app, *config.mutable_link());
}

}  // namespace sluice
