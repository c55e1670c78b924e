#pragma once

#include <ostream>
#include <string>

#include "sluice/v1/calibration.pb.h"

#include "tools/sluice_calibrate/measurements.h"

namespace sluice {

// Creates the report of the measurements: all figures, including the undetermined ones, and the profile of the link.
// The caller adds the time and the place of the measurements.
v1::Calibration MakeReport(const Measurements& measured);

// Returns true if every figure has a value.
bool IsComplete(const v1::Calibration& report);

// Prints the report for people to read.
void PrintReport(const v1::Calibration& report, std::ostream& out);

// Returns protobuf's JSON, with the field names of config files.
std::string ReportJson(const v1::Calibration& report);
// Returns a config file of the aggregator with only the link.
std::string LinkConfigJson(const v1::Calibration& report);

}  // namespace sluice
