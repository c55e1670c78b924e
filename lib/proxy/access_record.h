#pragma once

#include <string>

#include "sluice/access_record.h"

#include "absl/time/time.h"

namespace sluice {

// One line of JSON, without its end. Names that clients choose are cut, so that a line has at most 2 KB.
std::string AccessLine(const AccessRecord& record, absl::Time now);

}  // namespace sluice
