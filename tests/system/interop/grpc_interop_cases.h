#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sluice/tls_options.h"

#include "absl/status/status.h"

namespace sluice::testing {

// A server of gRPC's interop suite, and how much is asked of it.
struct InteropServer {
  std::vector<std::string> addresses;  // a connection each; every case asks all of them in one fan-out
  std::optional<TlsOptions> tls;
  int soak_iterations = 10;
  int concurrent_calls = 1000;  // on all connections together
};

// The cases of the suite that are unary or server streaming, by their names.
std::vector<std::string> InteropCases();

// Plays one case: OK, or what was not as the suite wants it. InvalidArgument: there is no such case.
absl::Status PlayInteropCase(const std::string& name, const InteropServer& server);

}  // namespace sluice::testing
