#pragma once

#include <vector>

#include "sluice/v1/sru_service.pb.h"

#include "absl/strings/string_view.h"

namespace sluice {

// One ReadSruResponse, parsed in place: the generated parser would copy the bytes, which are copied to their place in
// the segment anyway.
struct SruMessage {
  absl::string_view data;  // of the message that was parsed
  std::vector<v1::MissingSruRange> missing;
};

// False: `message` is no ReadSruResponse.
bool ParseSruMessage(absl::string_view message, SruMessage& parsed);

}  // namespace sluice
