#include "proxy/descriptor_limit.h"

#include <sys/resource.h>

#include "absl/strings/str_cat.h"

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

}  // namespace sluice
