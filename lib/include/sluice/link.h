#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sluice/budget_control.h"
#include "sluice/link_profile.h"
#include "sluice/link_schedule.h"

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "prometheus/collectable.h"
#include "prometheus/registry.h"

namespace sluice {

class AggregatorMetrics;
class LinkDriver;
class LinkMonitor;
class LinkShare;
struct ReceiveWindow;

// The budget of a link that several processes of a host share is leased from sluice-link. See docs/sharing.md.
struct SharedLink {
  std::string socket;       // path of the daemon's Unix socket
  std::string application;  // name in the daemon's metrics: 1 to 64 of [A-Za-z0-9._-]
  double weight = 1;        // 0.001 to 1000; shares are in proportion while all want more
  // That may be in flight as long as no daemon was ever there; at least 1. Default: an eighth of the budget.
  std::optional<int64_t> start_bytes;
  // Called after each change, on a thread of the link; for logs. OK: a lease is in force. Otherwise why none is, and
  // the link goes by its safe share. May be null.
  std::function<void(const absl::Status&)> on_state;
};

// One bottleneck link as this process uses it: the schedule, the threads that drive it, and its metrics. Create one for
// each link and share it among everything that reads over that link; two of them on one link would each fill the
// buffer. Thread-safe. Destroy it last, and not from a callback: the destructor waits for the calls that are under way.
class Link {
 public:
  // The budget follows what the network can take, as the aggregator's connections show it. With schedule.budget_bytes
  // and neither bound it is fixed, and so it is where unscheduled.
  struct BudgetOptions {
    // False: the buffer of the profile is not the truth, only a default. Then the budget starts at 16 KiB, which the
    // shallowest ports hold, and grows as long as that makes the link busier.
    bool buffer_known = true;
    // At least 1. Defaults: 8 full frames, or the budget at the start where that is less; and the buffer of the
    // profile, or 4 MiB where it is not known.
    std::optional<int64_t> floor_bytes;
    std::optional<int64_t> limit_bytes;
    // Called after each change, on a thread of the link; for logs. May be null.
    std::function<void(int64_t before_bytes, const BudgetStep& step)> on_change;
  };

  struct Options {
    LinkSchedule::Options schedule;
    // Threads that poll gRPC and drive the schedule. One keeps up with a gigabit of 10 KB responses.
    int completion_threads = 1;
    // What one connection to a worker may have in the network at once, however large its answer: its TCP receive window
    // is bounded, when it is made, and a call is charged for no more (schedule.max_in_flight_per_call_bytes, unless
    // that is set). Blocks are read in ranges no larger than that instead, each charged in full, without a bound on
    // their connections. 8 KiB to 2^30 bytes; 0: not bounded. Default: two thirds of the budget; not bounded where
    // unscheduled, or where that is fewer than 8 packets or more than 416 KiB. Linux gives at most net.core.rmem_max,
    // doubled.
    std::optional<int64_t> receive_window_bytes;
    BudgetOptions budget;
    // Then the budget of the schedule (its default: the buffer of the profile) is that of the whole link, of which this
    // process gets leases; it does not adapt. Not where unscheduled.
    std::optional<SharedLink> share;
    // Look at the TCP connections to workers while calls are out, to infer losses. Without it nothing is inferred, and
    // the budget stays.
    bool watch_connections = true;
    // Where the metrics go; its own registry when there is none.
    std::shared_ptr<prometheus::Registry> registry;
  };

  // What Create would say of these, without creating anything.
  static absl::Status Validate(const Options& options);

  // InvalidArgument that names the field, the value and the bound. Unimplemented for receive_window_bytes where the
  // gRPC that this was built with is one whose sockets cannot be reached; by default it then does without.
  static absl::StatusOr<std::shared_ptr<Link>> Create(const LinkProfile& profile);
  static absl::StatusOr<std::shared_ptr<Link>> Create(Options options);
  ~Link();

  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Bytes that may be in flight from now on, at least 1; from then on it is fixed. A smaller budget takes nothing back;
  // it only drains. FailedPrecondition where the budget is leased.
  absl::Status SetBudget(int64_t budget_bytes);

  // The link is another one from now on, or is to be used in another way, while calls go on: its profile, the queue,
  // the budget and its bounds, and for connections that are made later the receive window. A smaller budget takes
  // nothing back; it only drains. InvalidArgument as Create, and where anything else differs (discipline,
  // completion_threads, watch_connections, registry, stall_timeout, share); then nothing has changed. The functions
  // on_change and on_state stay. One at a time.
  absl::Status Reconfigure(Options options);

  ScheduleState State() const;
  // Not OK: connections are not watched, since the kernel does not tell of them (a sandbox forbids NETLINK_SOCK_DIAG)
  // or watch_connections is off.
  const absl::Status& telemetry_status() const;
  LinkSchedule::Options schedule_options() const;

  // The metrics of docs/metrics.md, for whatever exports them: counters and histograms are in the registry, the gauges
  // are read from the schedule when they are collected. Both live as long as the link.
  prometheus::Registry& registry();
  const prometheus::Collectable& gauges() const;

  // For the layers that make calls over the link; not part of the public interface.
  LinkDriver& driver() { return *driver_; }
  std::optional<ReceiveWindow> receive_window() const;

 private:
  Link(Options options, const BudgetBounds& bounds, LinkSchedule schedule);

  mutable absl::Mutex mutex_;
  Options options_ ABSL_GUARDED_BY(mutex_);
  const std::shared_ptr<prometheus::Registry> registry_;
  std::unique_ptr<AggregatorMetrics> metrics_;
  std::unique_ptr<LinkDriver> driver_;
  std::unique_ptr<LinkMonitor> monitor_;
  std::unique_ptr<LinkShare> share_;  // null: the budget is our own
};

}  // namespace sluice
