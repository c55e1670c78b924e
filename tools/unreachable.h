#pragma once

#include <optional>
#include <string>

#include "sluice/tls_options.h"

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace sluice {

// Why no connection to the server at `address` comes about. gRPC's own words do not tell a certificate that expired
// from one of an unknown authority, nor a server that refuses this client from one that went away. So this connects
// once more, by Sluice's own wire, for at most `timeout`, and gives what that failed of: Unavailable, with the address.
// Gives `failed`, what gRPC said, where the server answers now. `tls` absent: no TLS.
absl::Status ExplainUnreachable(const absl::Status& failed, const std::string& address,
                                const std::optional<TlsOptions>& tls, absl::Duration timeout);

}  // namespace sluice
