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

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "prometheus/collectable.h"
#include "prometheus/registry.h"

namespace sluice {

class AsioExecutor;
class AggregatorMetrics;
class Callbacks;
class LinkCore;
class LinkMonitor;
class LinkShare;
struct WorkerSummary;

// The budget of a link that several processes of a host share is leased from sluice-link. See docs/sharing.md.
struct SharedLink {
  std::string socket;       // path of the daemon's Unix socket
  std::string application;  // name in the daemon's metrics: 1 to 64 of [A-Za-z0-9._-]
  double weight = 1;        // 0.001 to 1000; shares are in proportion while all want more
  // Bytes allowed in flight before the first daemon appears; at least 1. Default: an eighth of the budget.
  std::optional<int64_t> start_bytes;
  // Called after each change, on a thread of the link; for logs. OK: a lease is in force. Otherwise why none is, and
  // the link goes by its safe share. May be null.
  std::function<void(const absl::Status&)> on_state;
};

// One bottleneck link as this process uses it: the schedule, the connections to workers, the one thread that everything
// of the link runs on, and its metrics. Create one for each link and share it among everything that reads over that
// link; two of them on one link would each fill the buffer. Thread-safe. Destroy it last, and not from a callback.
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
    // Run the callbacks of the application (merge, done, ReadStream::Next) on the link's thread. That saves a hop
    // between threads, but a slow callback then delays the link. Default: they run on a thread of their own.
    bool inline_callbacks = false;
    // Threads that carry the link, 1 to 64. Above 1 the sockets of the workers, and TLS, are spread over all but the
    // first; the one schedule, HTTP/2 and gRPC stay on that one. Bytes then change threads twice a call, so that it
    // pays where TLS or the system calls fill a processor.
    int threads = 1;
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

  // InvalidArgument that names the field, the value and the bound.
  static absl::StatusOr<std::shared_ptr<Link>> Create(const LinkProfile& profile);
  static absl::StatusOr<std::shared_ptr<Link>> Create(Options options);
  ~Link();

  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Bytes that may be in flight from now on, at least 1; from then on it is fixed. A smaller budget takes nothing back;
  // it only drains. FailedPrecondition where the budget is leased.
  absl::Status SetBudget(int64_t budget_bytes);

  // Changes the link while calls go on: its profile, the queue, the budget and its bounds. A smaller budget takes
  // nothing back; it only drains. InvalidArgument as Create, and where anything else differs (discipline,
  // inline_callbacks, threads, watch_connections, registry, stall_timeout, share); then nothing has changed. The
  // functions on_change and on_state stay. One call at a time.
  absl::Status Reconfigure(Options options);

  ScheduleState State() const;
  LinkSchedule::Options schedule_options() const;

  // The metrics of docs/metrics.md, for whatever exports them: counters and histograms are in the registry, the gauges
  // are read from the schedule when they are collected. Both live as long as the link.
  prometheus::Registry& registry();
  const prometheus::Collectable& gauges() const;

  std::vector<WorkerSummary> WorkerSummaries() const;

  // For the layers that make calls over the link; not part of the public interface. `task` runs on the link's thread:
  // later, or before Await returns.
  void Post(std::function<void(LinkCore&)> task) const;
  void Await(absl::FunctionRef<void(LinkCore&)> task) const;
  Callbacks& callbacks() { return *callbacks_; }

 private:
  Link(Options options, const BudgetBounds& bounds, LinkSchedule schedule);

  Options options_;  // read and changed by Create and Reconfigure alone
  const std::shared_ptr<prometheus::Registry> registry_;
  const std::unique_ptr<AggregatorMetrics> metrics_;
  const std::unique_ptr<AsioExecutor> executor_;
  // For the link's thread only.
  std::unique_ptr<LinkCore> core_;
  std::unique_ptr<LinkMonitor> monitor_;

  std::unique_ptr<Callbacks> callbacks_;
  std::unique_ptr<LinkShare> share_;  // null: the budget is our own
};

}  // namespace sluice
