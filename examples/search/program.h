#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 named it
class App;
}

namespace sluice::examples::search {

// Parses the flags and runs the program. Returns 0, 1 if `run` fails, or 2 if a flag is wrong. Writes the reason to
// stderr.
int RunProgram(CLI::App& app, int argc, char** argv, const std::function<absl::Status()>& run);

// Adds a flag for a time such as 300ms.
void AddDuration(CLI::App& app, const std::string& name, const std::function<void(absl::Duration)>& set,
                 const std::string& help);

// Formats a duration with at most three digits after the point of its unit.
std::string DurationText(absl::Duration duration);

}  // namespace sluice::examples::search
