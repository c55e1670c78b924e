#pragma once

#include <string_view>

#include "absl/status/statusor.h"

namespace sluice {

// The rule that divides the budget of a link. Flags and configs use these names.
//   weighted  Clients with demand get shares in proportion to their weights.
//   fifo      One block of one client at a time, in the order of their requests, as the source paper proposes.
enum class SharingMode { kWeighted, kFifo };
std::string_view SharingModeName(SharingMode mode);
absl::StatusOr<SharingMode> ParseSharingMode(std::string_view name);

}  // namespace sluice
