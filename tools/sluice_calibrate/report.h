#pragma once

#include <ostream>
#include <string>

#include "sluice/v1/calibration.pb.h"

#include "tools/sluice_calibrate/measurements.h"

namespace sluice {

// Makes the report of the measurements: all figures, also those that could not be determined, and the profile of the
// link. The caller adds when and where they were taken.
v1::Calibration MakeReport(const Measurements& measured);

// Returns whether every figure has a value.
bool IsComplete(const v1::Calibration& report);

// Prints the report for people to read.
void PrintReport(const v1::Calibration& report, std::ostream& out);

// Returns protobuf's JSON, with the names that config files use.
std::string ReportJson(const v1::Calibration& report);
// Returns a config file of the aggregator with the link alone.
std::string LinkConfigJson(const v1::Calibration& report);

}  // namespace sluice
