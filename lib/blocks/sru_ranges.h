#pragma once

#include <cstdint>

#include "sluice/link_schedule.h"

namespace sluice {

// The most payload that one answer of a worker carries, whatever the budget: gRPC takes messages of up to 4 MiB.
inline constexpr int64_t kMaxRangeBytes = 1 << 20;

// How many bytes of an SRU to ask for at once. Three answers have to fit the budget together: with one in flight the
// link idles while the next request travels, two leave it no slack for a slow thread. An SRU that is small enough is
// read whole; a larger one as ranges of full packets, which waste none of the buffer. No range is larger than what a
// call is charged for at most: several may come over one connection at a time, whose receive window is not bounded.
int64_t RangeBytes(const LinkSchedule::Options& options, int64_t budget_bytes, int64_t sru_bytes);

}  // namespace sluice
