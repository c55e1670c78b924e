#pragma once

#include <map>
#include <string>

#include "sluice/link.h"

#include "lib/telemetry/admin_server.h"

namespace sluice {

// Returns the pages of an admin server that show a link: the status page, and the workers that need attention as JSON,
// which the status page reads. The link must outlive them.
std::map<std::string, AdminServer::Page> LinkPages(const Link& link);

}  // namespace sluice
