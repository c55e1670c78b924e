#include "lib/cli/program.h"

#include <algorithm>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <google/protobuf/message.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lib/cli/config_file.h"
#include "lib/cli/config_reference.h"
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

constexpr char kStartWith[] = "Start with";  // the group of the main flags

// Prints the example and the main flags before everything else.
class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(const Program& program) : example_(program.example), main_flags_(program.main_flags) {}

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    if (mode == CLI::AppFormatMode::Sub) return Formatter::make_help(app, name, mode);
    std::vector<const CLI::Option*> flags;
    for (const std::string& flag : main_flags_) flags.push_back(app->get_option(flag));
    std::string groups = make_groups(app, mode);
    while (absl::StrReplaceAll({{"\n\n\n", "\n\n"}}, &groups) > 0) continue;  // what listed groups leave
    return absl::StrCat(make_description(app), "\nExample:\n  ", app->get_name(), " ", example_, "\n",
                        Formatter::make_group(kStartWith, false, flags), "\n", make_usage(app, name),
                        make_positionals(app), groups, make_subcommands(app, mode));
  }

  std::string make_option_opts(const CLI::Option* flag) const override {
    return absl::StrReplaceAll(Formatter::make_option_opts(flag), {{" ...", ",..."}});
  }

  // make_help has listed the main flags already.
  std::string make_group(std::string group, bool is_positional, std::vector<const CLI::Option*> flags) const override {
    return group == kStartWith ? "" : Formatter::make_group(std::move(group), is_positional, std::move(flags));
  }

 private:
  const std::string example_;
  const std::vector<std::string> main_flags_;
};

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
    if (const absl::Status status = program.check ? program.check() : absl::OkStatus(); !status.ok()) {
      return Fail(program, status.message(), kExitUsage);
    }
    std::cout << "config ok" << std::endl;
    return 0;
  }
  const absl::Status status = program.run();
  if (status.ok()) return 0;
  // A peer may give a code alone, as gRPC servers do for a method that they do not have.
  const std::string code = absl::StatusCodeToString(status.code());
  return Fail(program, status.message().empty() ? absl::string_view(code) : status.message(), kExitFailure);
}

// CLI11's own text has the arguments in reverse. An argument that follows the last entry of a list was meant for it.
std::string UnexpectedArguments(const CLI::App& app, int argc, const char* const* argv) {
  const std::vector<std::string> unexpected = app.remaining(true);
  std::string text = absl::StrCat("The following arguments were not expected: ", absl::StrJoin(unexpected, " "));
  const char* const* const at = std::find(argv + 1, argv + argc, unexpected.front());
  for (const CLI::Option* flag : app.get_options()) {
    if (flag->count() == 0 || flag->get_expected_max() != CLI::detail::expected_max_vector_size) continue;
    const std::string& last = flag->results().back();
    if (at == argv + argc || absl::StartsWith(*at, "-") || !absl::EndsWith(*(at - 1), last)) continue;
    absl::StrAppend(&text, "\nA list takes commas: ", flag->get_name(), " ", last, ",", unexpected.front());
  }
  return text;
}

int ParseAndRun(int argc, const char* const* argv, const Program& program) {
  CLI::App app(program.description, program.name);
  std::string version = program.name + " " + std::string(BuildVersion());
  if (!BuildCommit().empty()) version += " (" + std::string(BuildCommit()) + ")";
  app.set_version_flag("--version", version);
  bool check_only = false;
  bool reference_only = false;
  if (program.config != nullptr) {
    AddConfigFlags(app, *program.config, program.config_file, check_only);
    app.add_flag("--config_reference", reference_only, "Print docs/reference/config.md's part of this program")
        ->group("");  // not in --help
  }
  // Groups of flags inherit the formatter when they are added.
  if (!program.example.empty()) app.formatter(std::make_shared<HelpFormatter>(program));
  if (program.add_flags) program.add_flags(app);
  for (const std::string& flag : program.main_flags) app.get_option(flag)->group(kStartWith);
  try {
    app.parse(ReversedArguments(argc, argv));
  } catch (const CLI::Success& success) {
    return app.exit(success);  // --help, --version
  } catch (const CLI::ExtrasError&) {
    return Fail(program, absl::StrCat(UnexpectedArguments(app, argc, argv), "\nTry ", program.name, " --help"),
                kExitUsage);
  } catch (const CLI::Error& error) {
    return Fail(program, absl::StrCat(error.what(), "\nTry ", program.name, " --help"), kExitUsage);
  }
  if (reference_only) {
    std::cout << ConfigReference(program.name, program.description, *program.config->GetDescriptor());
    return 0;
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

CLI::Option* AddListFlag(CLI::App& app, const std::string& name, const std::string& help,
                         const std::function<void(const std::vector<std::string>&)>& set) {
  // CLI11's delimiter would drop empty entries, and the order of workers is that of the stripe.
  const auto split_and_set = [name, set](const std::vector<std::string>& texts) {
    std::vector<std::string> list;
    for (const std::string& text : texts) {
      const std::vector<std::string> entries = absl::StrSplit(text, ',');
      if (entries.size() > 1 && std::count(entries.begin(), entries.end(), "") > 0) {
        throw CLI::ValidationError(name, "\"" + text + "\" has an empty entry");
      }
      list.insert(list.end(), entries.begin(), entries.end());
    }
    set(list);
  };
  return app.add_option_function<std::vector<std::string>>(name, split_and_set, help)->allow_extra_args(false);
}

}  // namespace sluice
