#pragma once

#include <memory>

#include "sluice/link.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice {

// As Link::Create; the link logs the changes of its budget and of its lease.
absl::StatusOr<std::shared_ptr<Link>> CreateLoggedLink(Link::Options options);

}  // namespace sluice
