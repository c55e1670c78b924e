#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/tcp/incast.h"
#include "lib/tcp/tcp_ext.h"

namespace sluice {

// The result of a watch. A plain value.
struct DiagnosisReport {
  IncastDiagnosis diagnosis;
  TcpExt counted;  // during the watch
  absl::Duration watched;
};

// Returns the report for people: the verdict in one line, the evidence, and what to do next.
std::string ReportText(const DiagnosisReport& report);

// Writes the report as a flat JSON object to a file, or to stdout for "-". Returns the errors of WriteJsonReport.
absl::Status WriteReport(const DiagnosisReport& report, const std::string& path);

}  // namespace sluice
