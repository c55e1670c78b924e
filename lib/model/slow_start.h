#pragma once

#include <cstdint>

#include "sluice/link_profile.h"

namespace sluice {

// Round trips in which a worker sends `sru_packets` >= 1 packets when nothing is lost: 1 over a persistent connection;
// over a fresh one the least r with IW * (2^r - 1) >= S_SRU, which for IW = 1 is the ceil(log2(S_SRU + 1)) of eq. 18.
int64_t SendingRounds(const LinkProfile& profile, int64_t sru_packets);

}  // namespace sluice
