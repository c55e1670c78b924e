#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <google/protobuf/repeated_ptr_field.h>

#include "sluice/v1/config.pb.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/tls/access_rules.h"
#include "lib/tls/server_tls.h"

namespace sluice {

// Returns the rules of a server that listens on these addresses. Returns InvalidArgument that names the field for a
// wrong rule, and for one that has no effect: names without tls.client_ca, and uids without a Unix socket.
absl::StatusOr<AccessRules> ParseAccess(const google::protobuf::RepeatedPtrField<v1::AccessRule>& config,
                                        const std::optional<ServerTls>& tls, const std::vector<std::string>& listen);

// Returns a function that logs a refused call: for one client and method one line in ten seconds. Thread-safe.
std::function<void(const AccessRefusal&)> RefusedCallLog();

// Returns a function that logs why the certificate of a client was refused: each reason once in ten seconds, and at
// most 64 reasons. Thread-safe.
std::function<void(const absl::Status& why)> RefusedCertificateLog();

}  // namespace sluice
