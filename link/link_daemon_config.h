#pragma once

#include <string>

#include "sluice/link_profile.h"
#include "sluice/v1/config.pb.h"

#include "absl/status/statusor.h"
#include "lib/sharing/lease_server.h"

namespace sluice {

// The options of sluice-link.
struct LinkDaemonOptions {
  std::string admin;  // host:port; empty: none
  LinkProfile profile;
  LeaseServer::Options server;
};

// Checks the config as far as that is possible without starting anything. Returns InvalidArgument that names the field,
// its value and what it should be.
absl::StatusOr<LinkDaemonOptions> ParseLinkDaemonConfig(const v1::LinkDaemonConfig& config);

}  // namespace sluice
