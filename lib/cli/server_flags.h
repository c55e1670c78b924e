#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "lib/cli/program.h"

namespace sluice {

// The flags that every server has, over the fields of the same names in its config.
template <class Config>
void AddServerFlags(CLI::App& app, Config& config, std::string& ready_file) {
  const auto text = [&](const char* name, void (Config::*set)(const std::string&), const char* help) {
    AddTextFlag(app, name, help, [&config, set](const std::string& value) { (config.*set)(value); });
  };
  text("--admin", &Config::template set_admin<const std::string&>, "host:port of /metrics; default: none");
  text("--drain_delay", &Config::template set_drain_delay<const std::string&>,
       "How long SIGTERM goes on serving while health says NOT_SERVING. Default 0");
  text("--drain_timeout", &Config::template set_drain_timeout<const std::string&>,
       "How long SIGTERM waits for calls under way. Default 10s");
  text("--log_level", &Config::template set_log_level<const std::string&>,
       "debug, info, warning or error. Default info");
  app.add_flag_function(
      "--reflection", [&config](int64_t count) { config.set_reflection(count > 0); }, "Serve gRPC reflection");
  app.add_option("--ready_file", ready_file, "Write the bound addresses here once serving, one a line");
}

}  // namespace sluice
