#include "lib/telemetry/status_page.h"

#include <string>

namespace sluice {

AdminServer::Page StatusPage() {
  static constexpr char kHtml[] =
#include "status_page.html.inc"
      ;
  return {.content_type = "text/html; charset=utf-8", .body = [] { return std::string(kHtml); }};
}

}  // namespace sluice
