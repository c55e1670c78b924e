#pragma once

#include <iosfwd>
#include <vector>

#include "tools/sluice_plan/sizing.h"

namespace sluice {

// Where a row stands in the teeth of the goodput over N. Only steps of 5 % or more count.
enum class Tooth { kNone, kPeak, kTrough, kRise };

// Returns a Tooth for each of `rows`, which are N = 1, 2, 3 …
std::vector<Tooth> FindTeeth(const std::vector<Sizing>& rows);

// Prints a table for people to read: N = 1, the last N and the teeth, or every row.
void PrintTable(const std::vector<Sizing>& rows, bool all, std::ostream& out);

}  // namespace sluice
