#pragma once

#include <cstdint>

#include "sluice/link_profile.h"

namespace sluice {

// Returns the number of round trips in which a worker sends `sru_packets` >= 1 packets if nothing is lost. It is 1 over
// a persistent connection. Over a fresh connection it is the least r with IW * (2^r - 1) >= S_SRU. For IW = 1 this is
// the ceil(log2(S_SRU + 1)) of eq. 18.
int64_t SendingRounds(const LinkProfile& profile, int64_t sru_packets);

}  // namespace sluice
