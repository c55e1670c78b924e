#include "lib/cli/ready_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice {

void AddReadyFileFlag(CLI::App& app, std::string& path) {
  app.add_option("--ready_file", path, "File to write the bound addresses to when the server serves, one per line")
      ->type_name("FILE");
}

absl::Status WriteReadyFile(const std::string& path, const std::vector<std::string>& addresses) {
  if (path.empty()) return absl::OkStatus();
  const std::string partial = path + ".partial";
  std::ofstream file(partial);
  file << absl::StrJoin(addresses, "\n") << "\n";
  file.close();
  if (!file || std::rename(partial.c_str(), path.c_str()) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot write the ready file ", path, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status CheckReadyFile(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  std::error_code error;
  if (std::filesystem::is_directory(folder, error)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("ready_file: the folder of \"", path, "\" does not exist; create ", folder.string()));
}

}  // namespace sluice
