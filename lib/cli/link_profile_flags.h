#pragma once

#include "sluice/link_profile.h"
#include "sluice/v1/link_profile.pb.h"

#include "absl/status/statusor.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 named it
class App;
}

namespace sluice {

// Empty fields keep the defaults of LinkProfile; `mtu` sets packet_payload, frame and ack unless those are given. The
// result has passed Validate(). InvalidArgument names the field as in the config file: "link.capacity: ...".
absl::StatusOr<LinkProfile> ParseLinkProfile(const v1::LinkProfile& config);

// Adds one flag for each field, in a group of --help. Parsing writes only flags that are given; `config` must outlive
// parsing.
void AddLinkProfileFlags(CLI::App& app, v1::LinkProfile& config);

}  // namespace sluice
