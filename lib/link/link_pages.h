#pragma once

#include <map>
#include <string>

#include "sluice/link.h"

#include "lib/telemetry/admin_server.h"
#include "lib/telemetry/thread_watch.h"

namespace sluice {

// Returns the pages of an admin server that show a link: the status page, and the workers that need attention as JSON,
// which the status page reads. The link must outlive them.
std::map<std::string, AdminServer::Page> LinkPages(const Link& link);

// Returns the link's thread, for the ThreadWatch of an admin server. The link must outlive its use.
ThreadWatch::Post LinkThread(const Link& link);

}  // namespace sluice
