#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/sharing/link_divider.h"
#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"
#include "prometheus/registry.h"

namespace boost::asio {
class io_context;
}

namespace sluice {

class PassedSockets;

// Something that happened to a process on a shared link; for logs.
struct SharingEvent {
  enum class Kind { kJoined, kLeft, kExpired, kReturned, kRefused };
  Kind kind = Kind::kJoined;
  std::string application;  // empty if the process was refused before its hello
  double weight = 0;
  pid_t pid = 0;
  uid_t uid = 0;
  std::string reason;  // for kRefused
};
std::string_view SharingEventName(SharingEvent::Kind kind);

// The daemon's side of a shared link: a Unix socket on which processes report their demand, and LinkDivider, which
// divides the link. There is one for each link of a host, in sluice-link or in any process. It runs on the thread of
// the context, the IO thread; Collect is thread-safe.
class LeaseServer : public prometheus::Collectable {
 public:
  struct Options {
    std::string socket;
    mode_t socket_mode = 0600;
    std::optional<gid_t> socket_group;
    std::shared_ptr<PassedSockets> passed;  // as AsioListener::Options::passed
    // Users whose processes may join, as the kernel reports them. Empty: the user of this process.
    std::vector<uid_t> allowed_uids;
    std::optional<double> max_uid_weight;  // that all processes of one user may have together; none: any
    std::chrono::nanoseconds hello_timeout = std::chrono::seconds(5);  // a connection without a hello ends
    LinkDivider::Options shares;
    std::function<void(const SharingEvent&)> on_event;                // called on the IO thread; may be null
    std::function<void(const InvariantBreach&)> on_invariant_breach;  // like on_event
  };

  // Returns InvalidArgument that names the field, FailedPrecondition if another process serves on the socket,
  // Unavailable if the socket cannot be made. Counters are in `registry`, which must outlive the server; gauges come
  // from Collect.
  static absl::StatusOr<std::unique_ptr<LeaseServer>> Start(boost::asio::io_context& context, Options options,
                                                            prometheus::Registry& registry);
  // Closes every connection; the processes then use their safe shares. Do not call it on the IO thread, which must
  // still run.
  ~LeaseServer() override;
  LeaseServer(const LeaseServer&) = delete;
  LeaseServer& operator=(const LeaseServer&) = delete;

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  class Core;
  LeaseServer(boost::asio::io_context& context, std::shared_ptr<Core> core);

  boost::asio::io_context& context_;
  const std::shared_ptr<Core> core_;
};

}  // namespace sluice
