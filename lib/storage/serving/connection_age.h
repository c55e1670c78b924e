#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/cli/units.h"
#include "lib/storage/serving/rpc_server.h"

namespace sluice {

// Parses max_connection_age of a config into the options of its server; empty: connections have no end. Returns
// InvalidArgument for a wrong time, and for one outside of a second to a day.
inline absl::Status ParseConnectionAge(const std::string& text, RpcServer::Options& options) {
  absl::Status status = ParseField("max_connection_age", text, ParseDuration, options.max_connection_age);
  if (!status.ok() || text.empty()) return status;
  if (options.max_connection_age >= absl::Seconds(1) && options.max_connection_age <= absl::Hours(24)) return status;
  return absl::InvalidArgumentError(absl::StrCat("max_connection_age is ", text, "; it must be 1s to 24h"));
}

}  // namespace sluice
