#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace sluice {

// Tells whoever started a server, by a file, that it serves and where: a line an address. The file appears whole. Does
// nothing for an empty path. FailedPrecondition: it cannot be written.
absl::Status WriteReadyFile(const std::string& path, const std::vector<std::string>& addresses);

}  // namespace sluice
