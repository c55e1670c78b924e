#include "program.h"

#include <iostream>

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"

namespace sluice::examples::search {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongFlag = 2;

}  // namespace

int RunProgram(CLI::App& app, int argc, char** argv, const std::function<absl::Status()>& run) {
  app.set_version_flag("--version", absl::StrCat(app.get_name(), " of Sluice ", SEARCH_SLUICE_VERSION));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongFlag;  // 0 for --help and --version
  }
  const absl::Status status = run();
  if (status.ok()) return 0;
  std::cerr << app.get_name() << ": " << status.message() << std::endl;
  return kFailed;
}

void AddDuration(CLI::App& app, const std::string& name, const std::function<void(absl::Duration)>& set,
                 const std::string& help) {
  app.add_option_function<std::string>(
         name,
         [name, set](const std::string& text) {
           absl::Duration duration;
           if (!absl::ParseDuration(text, &duration) || duration <= absl::ZeroDuration()) {
             throw CLI::ValidationError(name, absl::StrCat("\"", text, "\" is not a time above 0, such as 300ms"));
           }
           set(duration);
         },
         help)
      ->type_name("DURATION");
}

std::string DurationText(absl::Duration duration) {
  absl::Duration digit = absl::Nanoseconds(1);
  for (const absl::Duration unit : {absl::Microseconds(1), absl::Milliseconds(1), absl::Seconds(1)}) {
    if (duration >= unit) digit = unit / 1000;
  }
  return absl::FormatDuration(absl::Trunc(duration, digit));
}

}  // namespace sluice::examples::search
