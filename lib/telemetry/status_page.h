#pragma once

#include "lib/telemetry/admin_server.h"

namespace sluice {

// status_page.html, the live page of an aggregator. Each second it asks the server that it came from for `metrics`,
// `healthz` and `workers.json`, and it asks for nothing else.
AdminServer::Page StatusPage();

}  // namespace sluice
