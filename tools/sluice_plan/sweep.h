#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/sluice_plan/sizing.h"

namespace sluice {

inline constexpr size_t kMaxSweepRows = size_t{1} << 20;

// One read of a sweep, and its swept value as text ("64 KiB").
struct SweepRow {
  std::string value;
  Sizing sizing;
};

// Returns the reads that differ from `base` in one value, by "NAME=FROM:TO[:STEP]", as in "buffer=16kb:1mb:x2" or
// "rtt=20us:200us:+20us". NAME is workers, buffer, sru, capacity, rtt or timer_granularity. FROM and TO have the format
// of its flag. A STEP of xF multiplies, and +D adds; the default is +1 for workers and x2 otherwise. FROM is always
// among the reads; TO is if a step reaches it. Returns InvalidArgument with the text and the problem, or with the field
// that is out of its bounds in one of the reads.
absl::StatusOr<std::vector<SweepRow>> SizeUpSweep(std::string_view text, const Read& base);

// Returns the NAME in `text`; empty if there is none.
std::string_view SweptName(std::string_view text);

}  // namespace sluice
