#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sluice {

// Allows this process its maximum number of file descriptors: raises the soft limit to the hard limit (RLIMIT_NOFILE of
// getrlimit(2)). Returns the limit in force afterwards.
uint64_t RaiseDescriptorLimit();

// Checks that `descriptors` are enough for `connections` of clients (limits.connections), and some workers. Returns
// ResourceExhausted if they are not.
absl::Status CheckDescriptorLimit(size_t connections, uint64_t descriptors);

// Returns a function that logs a connection that the server has closed, and why. It logs one in ten seconds for each
// reason. Call it on one thread.
std::function<void(const std::string& peer, absl::string_view why)> RefusedConnectionLog();

}  // namespace sluice
