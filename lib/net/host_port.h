#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sluice {

// A parsed "10.0.0.7:9100", "localhost:9100" or "[::1]:9100"; ":9100" and "*:9100" mean all addresses, port 0 a free
// port.
struct HostPort {
  std::string host;  // without brackets; empty: all addresses
  int port = 0;      // 0 to 65535
};

// Returns InvalidArgument that quotes the text and explains the error.
absl::StatusOr<HostPort> ParseHostPort(std::string_view text);

}  // namespace sluice
