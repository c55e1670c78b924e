#pragma once

#include <memory>
#include <string>

#include "sluice/link.h"

#include "absl/status/statusor.h"

namespace sluice {

// An HTTP server for the operators of a program that uses this library. It has the metrics of a link, of
// docs/reference/metrics.md, and of the process at /metrics in Prometheus' text format, the page that shows them live
// at /, /readyz, and /livez, which is 503 if the thread of the link hangs. There is one for each link, on a thread of
// its own. It has no authentication, so open its port to Prometheus alone.
//
// The registry of the link (Link::Options::registry) may have metrics of the application, too.
class MetricsServer {
 public:
  // `listen` is host:port; port 0 selects a free port. Returns InvalidArgument if it is something else, Unavailable if
  // the address is in use or does not belong to this host. Keeps the link.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(std::shared_ptr<Link> link, const std::string& listen);
  ~MetricsServer();  // not in a callback
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // The address that it listens on, with its real port: "127.0.0.1:9464".
  const std::string& address() const;

 private:
  struct Parts;
  explicit MetricsServer(std::unique_ptr<Parts> parts);

  const std::unique_ptr<Parts> parts_;
};

}  // namespace sluice
