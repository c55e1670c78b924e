#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "tools/sluice_plan/sweep.h"

namespace sluice {

// Where a row stands in the teeth of the goodput of batches. Only steps of 5 % or more count.
enum class Tooth { kNone, kPeak, kTrough, kRise };

// Returns a Tooth for each of `rows`, each of which has a little more of what is swept than the one before.
std::vector<Tooth> FindTeeth(const std::vector<SweepRow>& rows);

// Prints a table for people to read: goodput with grants and without a schedule. Without `all` it has the first row,
// the last, powers of two of the workers, and rows where the need for Sluice changes. What is swept is the first
// column; of workers there is one anyway.
void PrintTable(const std::string& swept, const std::vector<SweepRow>& rows, bool all, std::ostream& out);

// The same with the slots of `batches`; without `all` it has the first row, the last and the teeth.
void PrintBatchTable(const std::string& swept, const std::vector<SweepRow>& rows, bool all, std::ostream& out);

}  // namespace sluice
