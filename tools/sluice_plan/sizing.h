#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sluice/plan.h"

#include "absl/status/statusor.h"
#include "lib/model/collapse.h"

namespace sluice {

// The input of the model: one read over one link. It reads SRUs of one size, or one data block of a fixed size. With a
// block, the share of each worker shrinks as the number of workers grows.
struct Read {
  LinkProfile profile;
  int64_t sru_bytes = 0;  // not used with a block
  std::optional<int64_t> block_bytes;
  int64_t workers = 0;
  absl::Duration think_time;  // of a worker
  CollapseOptions unscheduled;
};

// All results of the model for it.
struct Sizing {
  Read read;
  int64_t sru_bytes = 0;  // with a fixed block: the size of all SRUs but the last, which may be shorter
  bool applicable = true;
  std::string reason;  // why it is not applicable; otherwise empty
  SlotPlan slots;      // if not applicable, n, k, t_r and goodput are 0
  double rolling_goodput_bps = 0;
  double grants_goodput_bps = 0;
  double grants_link_share = 1;
  double tunnel_goodput_bps = 0;
  int64_t excess_bytes = 0;                       // of all responses, beyond the buffer; 0 if they fit together
  std::optional<double> unscheduled_goodput_bps;  // nothing if they do not: no model can say
  CollapseEstimate collapse;                      // the model of collapse, for the need of a schedule and for papers
};

// Returns InvalidArgument with the field, size or count that is out of its bounds.
absl::StatusOr<Sizing> SizeUp(const Read& read);

}  // namespace sluice
