#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace sluice {

// Lets this process have as many file descriptors as it may: the soft limit becomes the hard one (RLIMIT_NOFILE of
// getrlimit(2)). Returns the limit that is in force then.
uint64_t RaiseDescriptorLimit();

// Whether so many descriptors are enough for `connections` of clients (limits.connections), and some workers. Returns
// ResourceExhausted if they are not.
absl::Status CheckDescriptorLimit(size_t connections, uint64_t descriptors);

}  // namespace sluice
