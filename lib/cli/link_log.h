#pragma once

#include <memory>

#include "sluice/link.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice {

// For SharedLinkOptions::on_state.
void LogLease(const absl::Status& state);

// As Link::Create, with a link that logs the changes of its budget and the faults of its workers. Logs a warning if the
// budget is larger than the known buffer of the port.
absl::StatusOr<std::shared_ptr<Link>> CreateLoggedLink(Link::Options options);

}  // namespace sluice
