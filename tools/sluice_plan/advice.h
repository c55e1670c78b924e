#pragma once

#include <string>

#include "tools/sluice_plan/sizing.h"

namespace sluice {

// Says in plain words whether this read has the incast problem, what limits the slots, and which N or SRU size near it
// does better. SizeUp has made `sizing` from the other two.
std::string Advice(const LinkProfile& profile, const ReadSize& size, const Sizing& sizing);

}  // namespace sluice
