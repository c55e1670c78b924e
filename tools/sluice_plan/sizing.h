#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sluice/collapse.h"
#include "sluice/plan.h"

#include "absl/status/statusor.h"

namespace sluice {

// One read over one link: what the model is asked. Of SRUs of one size, or of one data block of a fixed size, of which
// each worker has the less the more there are.
struct Read {
  LinkProfile profile;
  int64_t sru_bytes = 0;  // not used with a block
  std::optional<int64_t> block_bytes;
  int64_t workers = 0;
  CollapseOptions unscheduled;
};

// Everything that the model says of it.
struct Sizing {
  Read read;
  int64_t sru_bytes = 0;  // with a fixed block: of all but the last, which may be shorter
  bool applicable = true;
  std::string reason;  // why not; else empty
  SlotPlan slots;      // not applicable: n, k, t_r and goodput are 0
  double rolling_goodput_bps = 0;
  CollapseEstimate unscheduled;
};

// Returns InvalidArgument that names the field, size or count that is out of its bounds.
absl::StatusOr<Sizing> SizeUp(const Read& read);

}  // namespace sluice
