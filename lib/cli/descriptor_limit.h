#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace sluice {

// Allows this process its maximum number of file descriptors: raises the soft limit to the hard limit (RLIMIT_NOFILE of
// getrlimit(2)). Returns the limit in force afterwards.
uint64_t RaiseDescriptorLimit();

// Checks that `descriptors` are enough for `connections` of clients (limits.connections), and some workers. Returns
// ResourceExhausted if they are not.
absl::Status CheckDescriptorLimit(size_t connections, uint64_t descriptors);

// Returns a function that logs a connection that was closed because few file descriptors are left. It logs one in ten
// seconds. Call it on one thread.
std::function<void(const std::string& peer)> RefusedConnectionLog();

}  // namespace sluice
