#pragma once

#include "absl/status/status.h"
#include "gmock/gmock.h"

namespace sluice::testing {

// Matches the code of an absl::Status.
MATCHER_P(HasCode, code, "") {
  const absl::Status& status = arg;
  *result_listener << status.ToString();
  return status.code() == code;
}

}  // namespace sluice::testing
