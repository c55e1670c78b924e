#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/scheduling/link_shares.h"
#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"
#include "prometheus/registry.h"

namespace boost::asio {
class io_context;
}

namespace sluice {

// What happened to a process on a shared link; for logs.
struct SharingEvent {
  enum class Kind { kJoined, kLeft, kExpired, kReturned, kRefused };
  Kind kind = Kind::kJoined;
  std::string application;  // empty where it was refused before it said its name
  double weight = 0;
  pid_t pid = 0;
  uid_t uid = 0;
  std::string reason;  // kRefused
};
std::string_view SharingEventName(SharingEvent::Kind kind);

// The side of a shared link that divides it: a Unix socket on which processes say what they want, and LinkShares behind
// it. One a link of a host: in sluice-link, or in any process. It runs on the IO thread; Collect is thread-safe.
class LeaseServer : public prometheus::Collectable {
 public:
  struct Options {
    std::string socket;
    mode_t socket_mode = 0600;
    std::optional<gid_t> socket_group;
    // Of processes that may join, as the kernel knows them. Empty: that of this process.
    std::vector<uid_t> allowed_uids;
    LinkShares::Options shares;
    std::function<void(const SharingEvent&)> on_event;  // on the IO thread; may be null
  };

  // InvalidArgument names the field; FailedPrecondition: another process serves on the socket; Unavailable: the file
  // cannot be made. Counters are in `registry`, which outlives the server; gauges come from Collect.
  static absl::StatusOr<std::unique_ptr<LeaseServer>> Start(boost::asio::io_context& context, Options options,
                                                            prometheus::Registry& registry);
  // Closes every connection: the processes go by their safe shares. Not on the IO thread, which has to run still.
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
