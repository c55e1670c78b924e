#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/sluice_plan/sizing.h"

namespace sluice {

inline constexpr size_t kMaxSweepRows = size_t{1} << 20;

// One read of a sweep, and its value of what is swept, for people ("64 KiB").
struct SweepRow {
  std::string value;
  Sizing sizing;
};

// The reads that differ from `base` in one value, by "NAME=FROM:TO[:STEP]", as in "buffer=16kb:1mb:x2" or
// "rtt=20us:200us:+20us". NAME is workers, buffer, sru, capacity, rtt or timer_granularity, and FROM and TO are written
// as its flag is. A STEP of xF multiplies, one of +D adds; without it workers go by +1 and the rest by x2. FROM is
// always among the reads, TO where a step meets it. InvalidArgument quotes the text and says what is wrong, or names
// the field that is out of its bounds in one of the reads.
absl::StatusOr<std::vector<SweepRow>> SizeUpSweep(std::string_view text, const Read& base);

// The NAME in `text`; empty where there is none.
std::string_view SweptName(std::string_view text);

}  // namespace sluice
