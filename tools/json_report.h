#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"

namespace sluice {

// A value of a tool's report, which is a flat JSON object: a number, a text or a list of numbers. The fields have no
// particular order.
using JsonValue = std::variant<double, std::string, std::vector<double>>;

// Writes the object to a file, or to stdout for "-". Returns FailedPrecondition if the file cannot be written.
absl::Status WriteJsonReport(const std::string& path, std::initializer_list<std::pair<const char*, JsonValue>> fields);

// Returns InvalidArgument that names the field if a report cannot be written to `path`, because its folder is missing.
absl::Status CheckReportFolder(const char* field, const std::string& path);

}  // namespace sluice
