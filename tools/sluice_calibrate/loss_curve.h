#pragma once

#include <string>

#include "sluice/v1/calibration.pb.h"

#include "absl/status/status.h"

namespace sluice {

// Returns a gnuplot script that draws an SVG: the share of lossy runs and their lost packets over the bytes in the
// queue, with a mark at the buffer. The report must have runs.
std::string LossCurveScript(const v1::Calibration& report, const std::string& svg_path);

// Returns FailedPrecondition if gnuplot is not installed on this host.
absl::Status FindGnuplot();

// Returns FailedPrecondition if gnuplot did not draw the SVG.
absl::Status DrawLossCurve(const v1::Calibration& report, const std::string& svg_path);

}  // namespace sluice
