#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 named it
class App;
}

namespace sluice {

// Adds the flag of a server for the file below. `path` must outlive the app.
void AddReadyFileFlag(CLI::App& app, std::string& path);

// Reports to the starter of a server, through a file, that it serves, and its addresses, one per line. The file appears
// whole. Does nothing for an empty path. Returns FailedPrecondition if the file cannot be written.
absl::Status WriteReadyFile(const std::string& path, const std::vector<std::string>& addresses);

// Returns FailedPrecondition if the folder of the file does not exist. Writes nothing.
absl::Status CheckReadyFile(const std::string& path);

}  // namespace sluice
