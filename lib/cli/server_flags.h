#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "lib/cli/program.h"

namespace sluice {

// Adds the flags that every server has. They set the config fields of the same names.
template <class Config>
void AddServerFlags(CLI::App& app, Config& config, std::string& ready_file) {
  const auto text = [&](const char* name, void (Config::*set)(const std::string&), const char* help) {
    AddTextFlag(app, name, help, [&config, set](const std::string& value) { (config.*set)(value); });
  };
  text("--admin", &Config::template set_admin<const std::string&>,
       "Address of /metrics and /healthz, host:port. Default: none");
  text("--drain_delay", &Config::template set_drain_delay<const std::string&>,
       "How long to go on serving after SIGTERM while health says NOT_SERVING. Default 0");
  text("--drain_timeout", &Config::template set_drain_timeout<const std::string&>,
       "How long to wait after SIGTERM for calls under way. Default 10s");
  text("--log_level", &Config::template set_log_level<const std::string&>,
       "Lowest level to log: debug, info, warning or error. Default info");
  app.add_flag_function(
      "--reflection", [&config](int64_t count) { config.set_reflection(count > 0); }, "Serve gRPC reflection");
  app.add_option("--ready_file", ready_file,
                 "File to write the bound addresses to when the server serves, one per line");
}

}  // namespace sluice
