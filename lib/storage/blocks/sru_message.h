#pragma once

#include <vector>

#include "sluice/v1/sru_service.pb.h"

#include "absl/strings/string_view.h"

namespace sluice {

// One ReadSruResponse, parsed in place. The generated parser would copy the bytes, and they are copied to the segment
// anyway.
struct SruMessage {
  absl::string_view data;  // points into the parsed message
  std::vector<v1::MissingSruRange> missing;
};

// Returns false if `message` is not a ReadSruResponse.
bool ParseSruMessage(absl::string_view message, SruMessage& parsed);

}  // namespace sluice
