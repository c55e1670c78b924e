#pragma once

#include <optional>
#include <string>

#include "sluice/tls_options.h"

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace sluice {

// Explains why there is no connection to the server at `address`. gRPC's own words do not tell a certificate that
// expired from one of an unknown authority, nor a server that refuses this client from one that went away. So this
// connects once more, by Sluice's own wire, for at most `timeout`, and returns Unavailable with the address and the
// reason of that failure. If the server answers now, it returns `failed`, which is what gRPC said. Without `tls` there
// is no TLS.
absl::Status ExplainUnreachable(const absl::Status& failed, const std::string& address,
                                const std::optional<TlsOptions>& tls, absl::Duration timeout);

}  // namespace sluice
