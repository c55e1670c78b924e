#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sluice {

// The memory limit of this process's cgroup and of those above it: the least memory.max of cgroup v2, or of v1's
// memory.limit_in_bytes. Nothing if there is none. `root` is the root of the file system; for tests.
std::optional<int64_t> MemoryLimit(const std::string& root = "");

}  // namespace sluice
