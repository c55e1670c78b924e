#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "sluice/link_profile.h"
#include "sluice/link_schedule.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "prometheus/collectable.h"
#include "prometheus/registry.h"

namespace sluice {

class AggregatorMetrics;
class LinkDriver;
struct ReceiveWindow;

// One bottleneck link as this process uses it: the schedule, the threads that drive it, and its metrics. Create one for
// each link and share it among everything that reads over that link; two of them on one link would each fill the
// buffer. Thread-safe. Destroy it last, and not from a callback: the destructor waits for the calls that are under way.
class Link {
 public:
  struct Options {
    LinkSchedule::Options schedule;
    // Threads that poll gRPC and drive the schedule. One keeps up with a gigabit of 10 KB responses.
    int completion_threads = 1;
    // What one connection to a worker may have in the network at once, however large its answer: its TCP receive window
    // is bounded, when it is made, and a call is charged for no more (schedule.max_in_flight_per_call_bytes, unless
    // that is set). 8 KiB to 2^30 bytes; 0: not bounded. Default: two thirds of the budget; not bounded where
    // unscheduled, or where that is fewer than 8 packets or more than 416 KiB. Linux gives at most net.core.rmem_max,
    // doubled.
    std::optional<int64_t> receive_window_bytes;
    // Where the metrics go; its own registry when there is none.
    std::shared_ptr<prometheus::Registry> registry;
  };

  // InvalidArgument that names the field, the value and the bound. Unimplemented for receive_window_bytes where the
  // gRPC that this was built with is one whose sockets cannot be reached; by default it then does without.
  static absl::StatusOr<std::shared_ptr<Link>> Create(const LinkProfile& profile);
  static absl::StatusOr<std::shared_ptr<Link>> Create(Options options);
  ~Link();

  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Bytes that may be in flight from now on, at least 1. A smaller budget takes nothing back; it only drains.
  absl::Status SetBudget(int64_t budget_bytes);

  ScheduleState State() const;
  const LinkSchedule::Options& schedule_options() const;

  // The metrics of docs/metrics.md, for whatever exports them: counters and histograms are in the registry, the gauges
  // are read from the schedule when they are collected. Both live as long as the link.
  prometheus::Registry& registry();
  const prometheus::Collectable& gauges() const;

  // For the layers that make calls over the link; not part of the public interface.
  LinkDriver& driver() { return *driver_; }
  std::optional<ReceiveWindow> receive_window() const;

 private:
  explicit Link(Options options, LinkSchedule schedule);

  Options options_;
  std::unique_ptr<AggregatorMetrics> metrics_;
  std::unique_ptr<LinkDriver> driver_;
};

}  // namespace sluice
