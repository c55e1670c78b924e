#pragma once

#include "lib/telemetry/admin_server.h"

namespace sluice {

// status_page.html, the live page of an aggregator or a proxy. Each second it requests `metrics`, `healthz` and
// `workers.json` from its own server, and nothing more.
AdminServer::Page StatusPage();

}  // namespace sluice
