#include "lib/sharing/sharing_mode.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace sluice {

std::string_view SharingModeName(SharingMode mode) {
  return mode == SharingMode::kFifo ? "fifo" : "weighted";
}

absl::StatusOr<SharingMode> ParseSharingMode(std::string_view name) {
  for (const SharingMode mode : {SharingMode::kWeighted, SharingMode::kFifo}) {
    if (name == SharingModeName(mode)) return mode;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("mode: \"", std::string(name), "\" is not known; use weighted or fifo"));
}

}  // namespace sluice
