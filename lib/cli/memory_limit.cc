#include "lib/cli/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace sluice {
namespace {

// Cgroup v1 writes nearly 2^63 if there is no limit.
constexpr int64_t kNoLimit = int64_t{1} << 60;

// The limit of one cgroup. A file that is missing, or has "max", has none.
void TakeLimit(const std::string& file, std::optional<int64_t>& least) {
  std::string text;
  int64_t limit = 0;
  if (!(std::ifstream(file) >> text) || !absl::SimpleAtoi(text, &limit) || limit <= 0 || limit >= kNoLimit) return;
  least = std::min(limit, least.value_or(limit));
}

}  // namespace

std::optional<int64_t> MemoryLimit(const std::string& root) {
  std::optional<int64_t> least;
  std::ifstream groups(absl::StrCat(root, "/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    // "0::/path" for v2, "4:memory:/path" for v1 (cgroups(7)). In a container the path is often "/".
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    const bool v1 = std::find(controllers.begin(), controllers.end(), "memory") != controllers.end();
    if (!v1 && (parts[0] != "0" || !parts[1].empty())) continue;
    const std::string mount = absl::StrCat(root, v1 ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup");
    for (std::string path = parts[2]; absl::StartsWith(path, "/"); path.resize(path.rfind('/'))) {
      const std::string folder = absl::StrCat(mount, path == "/" ? "" : path);
      TakeLimit(absl::StrCat(folder, v1 ? "/memory.limit_in_bytes" : "/memory.max"), least);
    }
    TakeLimit(absl::StrCat(mount, v1 ? "/memory.limit_in_bytes" : "/memory.max"), least);
  }
  return least;
}

}  // namespace sluice
