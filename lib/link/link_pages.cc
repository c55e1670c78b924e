#include "lib/link/link_pages.h"

#include <functional>
#include <utility>

#include "lib/link/worker_summary.h"
#include "lib/telemetry/status_page.h"

namespace sluice {

std::map<std::string, AdminServer::Page> LinkPages(const Link& link) {
  return {{"/", StatusPage()}, {"/workers.json", {.content_type = "application/json", .body = [&link] {
                                                    return WorstWorkersJson(link.WorkerSummaries());
                                                  }}}};
}

ThreadWatch::Post LinkThread(const Link& link) {
  return [&link](std::function<void()> task) { link.Post([task = std::move(task)](LinkLoop&) { task(); }); };
}

}  // namespace sluice
