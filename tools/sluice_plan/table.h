#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "tools/sluice_plan/sweep.h"

namespace sluice {

// The place of a row in the teeth of the goodput of batches. Only steps of at least 5 % count.
enum class Tooth { kNone, kPeak, kTrough, kRise };

// Returns a Tooth for each of `rows`. The swept value must increase from row to row.
std::vector<Tooth> FindTeeth(const std::vector<SweepRow>& rows);

// Prints a readable table: the first row, the last row and the teeth, or every row. The swept value is the first
// column, except for workers, which always have a column.
void PrintTable(const std::string& swept, const std::vector<SweepRow>& rows, bool all, std::ostream& out);

}  // namespace sluice
