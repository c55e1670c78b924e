#pragma once

#include "lib/telemetry/admin_server.h"

namespace sluice {

// status_page.html: the live page of an aggregator. It asks the server that it came from for `metrics`, `healthz` and
// `workers.json` each second, and nobody for anything else.
AdminServer::Page StatusPage();

}  // namespace sluice
