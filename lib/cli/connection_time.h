#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/cli/units.h"

namespace sluice {

// Parses max_connection_age or max_connection_idle of a config; empty: `time` stays. Returns InvalidArgument for a
// wrong time, and for one outside of a second to a day.
inline absl::Status ParseConnectionTime(const std::string& field, const std::string& text, absl::Duration& time) {
  absl::Status status = ParseField(field, text, ParseDuration, time);
  if (!status.ok() || text.empty() || (time >= absl::Seconds(1) && time <= absl::Hours(24))) return status;
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", text, "; it must be 1s to 24h"));
}

}  // namespace sluice
