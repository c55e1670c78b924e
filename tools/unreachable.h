#pragma once

#include <optional>
#include <string>

#include "sluice/tls_options.h"

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace sluice {

// Explains why there is no connection to the server at `address`. gRPC's error does not distinguish an expired
// certificate from an unknown authority, or a server that rejects this client from one that went away. This
// function therefore connects again with Sluice's own HTTP/2 code, for at most `timeout`. It returns Unavailable with
// the address and the reason of that failure. If the server responds now, it returns `failed`, the error of gRPC.
// Without `tls`, TLS is off.
absl::Status ExplainUnreachable(const absl::Status& failed, const std::string& address,
                                const std::optional<TlsOptions>& tls, absl::Duration timeout);

}  // namespace sluice
