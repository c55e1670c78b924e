#pragma once

#include <ostream>
#include <string>

#include "sluice/v1/calibration.pb.h"

#include "tools/sluice_calibrate/measurements.h"

namespace sluice {

// What is made of the measurements: all figures, those that could not be determined too, and the profile of the link.
// When and where they were taken is left to the caller.
v1::Calibration MakeReport(const Measurements& measured);

// Whether every figure has a value.
bool IsComplete(const v1::Calibration& report);

// For people.
void PrintReport(const v1::Calibration& report, std::ostream& out);

// Protobuf's JSON, with the names that config files use.
std::string ReportJson(const v1::Calibration& report);
// A config file of the aggregator with the link alone.
std::string LinkConfigJson(const v1::Calibration& report);

}  // namespace sluice
