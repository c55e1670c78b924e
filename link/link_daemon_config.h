#pragma once

#include <string>

#include "sluice/link_profile.h"
#include "sluice/v1/config.pb.h"

#include "absl/status/statusor.h"
#include "lib/sharing/lease_server.h"

namespace sluice {

// The options of sluice-link.
struct LinkDaemonOptions {
  std::string admin;  // host:port; empty: no admin server
  LinkProfile profile;
  LeaseServer::Options server;
};

// Checks the config as far as possible without starting anything. Returns InvalidArgument with the field, its value and
// the accepted values.
absl::StatusOr<LinkDaemonOptions> ParseLinkDaemonConfig(const v1::LinkDaemonConfig& config);

}  // namespace sluice
