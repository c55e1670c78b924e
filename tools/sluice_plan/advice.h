#pragma once

#include <string>

#include "tools/sluice_plan/sizing.h"

namespace sluice {

// In plain words: whether this read has the incast problem, what limits the slots, and which N or SRU size near it does
// better. Of a `sizing` that SizeUp made from the other two.
std::string Advice(const LinkProfile& profile, const ReadSize& size, const Sizing& sizing);

}  // namespace sluice
