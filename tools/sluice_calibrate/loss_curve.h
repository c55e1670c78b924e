#pragma once

#include <string>

#include "sluice/v1/calibration.pb.h"

#include "absl/status/status.h"

namespace sluice {

// Returns a script for gnuplot that draws, as an SVG, which share of the runs lost packets and how many, over what was
// in the queue, and marks the buffer. The report must have runs.
std::string LossCurveScript(const v1::Calibration& report, const std::string& svg_path);

// Returns FailedPrecondition if there is no gnuplot on this host.
absl::Status FindGnuplot();

// Returns FailedPrecondition if gnuplot did not draw it.
absl::Status DrawLossCurve(const v1::Calibration& report, const std::string& svg_path);

}  // namespace sluice
