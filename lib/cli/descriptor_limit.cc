#include "lib/cli/descriptor_limit.h"

#include <chrono>
#include <memory>
#include <optional>

#include <sys/resource.h>

#include "absl/strings/str_cat.h"
#include "lib/cli/log_limit.h"
#include "lib/cli/logging.h"

namespace sluice {
namespace {

// For connections to workers, the worker sides of tunnels, listeners and files.
constexpr uint64_t kOtherDescriptors = 1024;

}  // namespace

uint64_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  rlimit raised = limit;
  raised.rlim_cur = raised.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : limit.rlim_cur;
}

absl::Status CheckDescriptorLimit(size_t connections, uint64_t descriptors) {
  const uint64_t needed = connections + kOtherDescriptors;
  if (descriptors >= needed) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("limits.connections is ", connections, ", which with ", kOtherDescriptors, " others needs ", needed,
                   " file descriptors; the process may have ", descriptors, " (the hard limit of RLIMIT_NOFILE)"));
}

std::function<void(const std::string& peer, absl::string_view why)> RefusedConnectionLog() {
  constexpr std::chrono::seconds kInterval{10};
  constexpr size_t kReasons = 2;
  return [limit = std::make_shared<LogLimit>(kInterval, kReasons)](const std::string& peer, absl::string_view why) {
    const std::optional<int64_t> unlogged = limit->Take(std::string(why), std::chrono::steady_clock::now());
    if (!unlogged.has_value()) return;
    Log(LogLevel::kWarning, "a connection is closed",
        {{"client", peer}, {"unlogged", *unlogged}, {"reason", std::string(why)}});
  };
}

}  // namespace sluice
