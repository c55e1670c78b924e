#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sluice/plan.h"

#include "absl/status/statusor.h"

namespace sluice {

// What the service reads at once: SRUs of one size, or one data block of a fixed size, of which each worker has the
// less the more there are.
struct ReadSize {
  int64_t sru_bytes = 0;  // not used with a block
  std::optional<int64_t> block_bytes;
};

// Everything that the model says of one read from `workers` workers.
struct Sizing {
  int64_t workers = 0;
  int64_t sru_bytes = 0;  // with a fixed block: of all but the last, which may be shorter
  bool applicable = true;
  std::string reason;  // why not; else empty
  SlotPlan slots;      // not applicable: n, k, t_r and goodput are 0
  double rolling_goodput_bps = 0;
  CollapseEstimate unscheduled;
};

// Returns InvalidArgument that names the size or count that is out of its bounds.
absl::StatusOr<Sizing> SizeUp(const LinkProfile& profile, const ReadSize& size, int64_t workers);

}  // namespace sluice
