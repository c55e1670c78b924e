#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sluice/tls_options.h"

#include "absl/status/status.h"

namespace sluice::testing {

// A server of gRPC's interop suite, and the load of the cases on it.
struct InteropServer {
  std::vector<std::string> addresses;  // one connection each; every case calls all of them in one fan-out
  std::optional<TlsOptions> tls;
  int soak_iterations = 10;
  int concurrent_calls = 1000;  // on all connections together
};

// The names of the suite's cases that are unary or server streaming.
std::vector<std::string> InteropCases();

// Plays one case. Returns OK, or an error that names the deviation from the suite. InvalidArgument: the case does not
// exist.
absl::Status PlayInteropCase(const std::string& name, const InteropServer& server);

}  // namespace sluice::testing
