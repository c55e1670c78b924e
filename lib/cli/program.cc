#include "lib/cli/program.h"

#include <algorithm>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/cli/config_file.h"
#include "lib/cli/logging.h"
#include "lib/telemetry/build_info.h"

namespace sluice {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

// CLI11 expects the last argument first.
std::vector<std::string> ReversedArguments(int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  for (std::string& argument : arguments) {
    if (argument == "--") break;
    if (!argument.starts_with("--")) continue;
    const auto name_end = std::find(argument.begin(), argument.end(), '=');
    std::replace(argument.begin() + 2, name_end, '-', '_');
  }
  std::reverse(arguments.begin(), arguments.end());
  return arguments;
}

void AddConfigFlags(CLI::App& app, google::protobuf::Message& config, std::string* config_file, bool& check_only) {
  app.add_option_function<std::string>(
         "--config",
         [&config, config_file](const std::string& path) {
           const absl::Status status = LoadConfigFile(path, config);
           if (!status.ok()) throw CLI::ValidationError(std::string(status.message()));
           if (config_file != nullptr) *config_file = path;
         },
         "Config file in protobuf's JSON; flags override it")
      ->type_name("FILE")
      ->trigger_on_parse();  // runs before the callbacks of all other flags, which run after parsing
  app.add_flag("--check_config", check_only,
               "Check the flags and the config, print \"config ok\" and exit; start nothing");
}

int Fail(const Program& program, absl::string_view message, int code) {
  std::cerr << program.name << ": " << message << std::endl;
  return code;
}

int Run(const Program& program, bool check_only) {
  if (program.configure) {
    const absl::Status status = program.configure();
    if (!status.ok()) return Fail(program, status.message(), kExitUsage);
  }
  if (check_only) {
    std::cout << "config ok" << std::endl;
    return 0;
  }
  const absl::Status status = program.run();
  return status.ok() ? 0 : Fail(program, status.message(), kExitFailure);
}

int ParseAndRun(int argc, const char* const* argv, const Program& program) {
  CLI::App app(program.description, program.name);
  app.set_version_flag("--version", program.name + " " + std::string(BuildVersion()));
  bool check_only = false;
  if (program.config != nullptr) AddConfigFlags(app, *program.config, program.config_file, check_only);
  if (program.add_flags) program.add_flags(app);
  try {
    app.parse(ReversedArguments(argc, argv));
  } catch (const CLI::Success& success) {
    return app.exit(success);  // --help, --version
  } catch (const CLI::Error& error) {
    return Fail(program, absl::StrCat(error.what(), "\nTry ", program.name, " --help"), kExitUsage);
  }
  return Run(program, check_only);
}

}  // namespace

int RunProgram(int argc, const char* const* argv, const Program& program) {
  try {
    StartLogging();
    return ParseAndRun(argc, argv, program);
  } catch (const std::exception& error) {
    return Fail(program, error.what(), kExitFailure);
  }
}

absl::Status ReadConfigAgain(int argc, const char* const* argv, const std::function<void(CLI::App&)>& add_flags,
                             google::protobuf::Message& config) {
  CLI::App app;
  bool check_only = false;
  AddConfigFlags(app, config, nullptr, check_only);
  add_flags(app);
  try {
    app.parse(ReversedArguments(argc, argv));
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(error.what());
  }
  return absl::OkStatus();
}

void AddTextFlag(CLI::App& app, const std::string& name, const std::string& help,
                 const std::function<void(const std::string&)>& set) {
  app.add_option_function<std::string>(name, set, help);
}

void AddListFlag(CLI::App& app, const std::string& name, const std::string& help,
                 const std::function<void(const std::vector<std::string>&)>& set) {
  app.add_option_function<std::vector<std::string>>(name, set, help)->delimiter(',')->allow_extra_args(false);
}

}  // namespace sluice
