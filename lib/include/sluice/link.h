#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sluice/invariant_breach.h"
#include "sluice/link_profile.h"
#include "sluice/outlier_detection.h"
#include "sluice/schedule.h"
#include "sluice/worker_fault.h"

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "prometheus/collectable.h"
#include "prometheus/registry.h"

namespace sluice {

class AsioExecutor;
class BudgetLessor;
class LeasedBudget;
class LinkMetrics;
class Callbacks;
class LinkLoop;
class LinkMonitor;
struct BudgetBounds;
struct WorkerSummary;

// One bottleneck link as this process uses it: the schedule, the connections to the workers, the thread that both run
// on, and the metrics. Create one for each link, and share it among everything that reads over that link: two of
// them would each fill the buffer. Thread-safe. Destroy it last, and not from a callback.
class Link {
 public:
  // The budget adapts to the losses on the connections to the workers. It is fixed if schedule.budget_bytes is set and
  // neither bound is, or if the policy is unscheduled.
  struct BudgetOptions {
    // False means that the buffer in the profile is a default, and the port's buffer is unknown. The budget then starts
    // at 16 KiB, which the shallowest ports hold, and grows while that makes the link busier.
    bool buffer_known = true;
    // Bounds of the budget, at least 1. Default of the lower bound: 8 full frames, or the initial budget if that is
    // smaller. Default of the upper bound: 4 MiB, or the buffer of the profile if that is larger. The budget exceeds a
    // known buffer only beside others in the port.
    std::optional<int64_t> floor_bytes;
    std::optional<int64_t> limit_bytes;
    // Called after each change, on the link's thread; for logs. May be null.
    std::function<void(const BudgetChange& change)> on_change;
  };

  struct Options {
    ScheduleOptions schedule;
    // True runs the callbacks of the application (merge, done, ReadStream::Next) on the link's thread. That saves a hop
    // between threads, but a slow callback then delays the link. By default they run on threads of their own.
    bool inline_callbacks = false;
    // Number of threads that run the callbacks, 1 to 64; ignored with inline_callbacks. Fan-outs take turns on them,
    // and no two callbacks of one fan-out or read overlap. With n threads, n - 1 fan-outs whose `merge` is slow or
    // waits do not delay the others. Above 1, callbacks of different fan-outs overlap, so they must lock the data that
    // they share.
    int callback_threads = 1;
    // Number of threads that carry the link, 1 to 64. Above 1 the workers' sockets and TLS are spread over all but the
    // first; the schedule, HTTP/2 and gRPC stay on the first. Bytes then change threads twice in a call, so more
    // threads pay only if TLS or system calls saturate a CPU.
    int threads = 1;
    // Maximum number of bytes of responses that wait for `merge` or are on their way to it, over all FanOuts of the
    // link; 1 to 2^40. Further responses wait at their workers. The bytes of one fan-out are at most the free bytes, so
    // a slow `merge` does not stop other fan-outs. A message counts from its first grant on, and for at least 128
    // bytes. A response of at most a third of the budget counts from its request on. These messages may exceed the
    // bound:
    //  - one message of the link that is larger than its room;
    //  - one decompressed message for each callback thread;
    //  - one message for each call whose worker hangs or is more than eight times slower than the link, because such
    //    workers must not stop the others;
    //  - with the policy unscheduled, 64 KB for each call.
    // See docs/internals/fan-out.md. Default: 8 times the largest budget, and at least 64 MiB.
    std::optional<int64_t> callback_memory_bytes;
    // Maximum number of connections to one worker, 1 to 16. Further connections are made while calls wait because the
    // worker allows no more streams on the existing ones (MAX_CONCURRENT_STREAMS), and, in a proxy, for clients with
    // many calls. An extra connection ends after a minute without a call. With 1, calls wait for a free stream.
    int64_t worker_connections = 4;
    // When workers that fail or are slow are avoided, if other workers can answer their calls.
    OutlierDetection outlier_detection;
    BudgetOptions budget;
    // If set, this process leases parts of the budget from sluice-link. ShareLink of sluice/shared_link.h makes it. The
    // budget of the schedule (default: the buffer of the profile) then belongs to the whole link, and does not adapt.
    // An error with the policy unscheduled.
    std::shared_ptr<const BudgetLessor> share;
    // Whether the link looks at its TCP connections while calls are out, to infer losses, and at its workers, for
    // faults. If false, it infers nothing, and the budget stays.
    bool watch_connections = true;
    // Called when faults of workers begin or end, on the link's thread; for logs. May be null.
    std::function<void(const std::vector<WorkerFaultChange>& changes)> on_worker_faults;
    // Called once for each fact of the profile that the link contradicts, on the link's thread; for logs. May be null.
    std::function<void(const ProfileMismatch& mismatch)> on_profile_mismatch;
    // Called when an invariant of the link does not hold, on the link's thread; for logs. May be null. Debug builds end
    // instead.
    std::function<void(const InvariantBreach& breach)> on_invariant_breach;
    // The registry for the metrics. Null: the link makes one.
    std::shared_ptr<prometheus::Registry> registry;
  };

  // Returns the errors of Create, and creates nothing.
  static absl::Status Validate(const Options& options);

  // Return InvalidArgument that names the field, the value and the bound.
  static absl::StatusOr<std::shared_ptr<Link>> Create(const LinkProfile& profile);
  static absl::StatusOr<std::shared_ptr<Link>> Create(Options options);
  ~Link();

  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Sets the bytes that may be in flight, at least 1. The budget is fixed from then on. A smaller budget takes nothing
  // back: the bytes in flight drain. Returns FailedPrecondition if the budget is leased.
  absl::Status SetBudget(int64_t budget_bytes);

  // Changes the link during calls: its policy, its profile, the queue limit, the budget and its bounds,
  // worker_connections, outlier_detection, and callback_memory_bytes. A smaller budget takes nothing back: the bytes in
  // flight drain.
  // Returns InvalidArgument as Create does, and if any other option differs (names of classes, inline_callbacks,
  // callback_threads, threads, watch_connections, registry, stall_timeout, share); then nothing changes. The functions
  // on_change, on_state, on_worker_faults, on_profile_mismatch and on_invariant_breach stay as they are. With a new
  // policy, calls that are out end as they began: nothing that was granted is taken back, and what left unscheduled is
  // charged. A byte tunnel that was connected with the policy unscheduled stays unscheduled. Calls of Reconfigure must
  // not overlap.
  absl::Status Reconfigure(Options options);

  ScheduleState State() const;
  ScheduleOptions schedule_options() const;

  // The metrics of docs/reference/metrics.md, for export. Counters and histograms are in the registry; gauges are read
  // from the schedule when they are collected. Both live as long as the link.
  // sluice/metrics_server.h serves them. For a server of your own:
  //   exposer.RegisterCollectable(std::shared_ptr<prometheus::Collectable>(link, &link->gauges()));
  prometheus::Registry& registry();
  prometheus::Collectable& gauges() const;

  std::vector<WorkerSummary> WorkerSummaries() const;

  // For the layers that make calls over the link; not part of the public interface. Post runs `task` on the link's
  // thread later, Await before it returns.
  void Post(std::function<void(LinkLoop&)> task) const;
  void Await(absl::FunctionRef<void(LinkLoop&)> task) const;
  // Returns FailedPrecondition on a thread of this link, and so in a callback: `what` would wait for its own thread.
  absl::Status CheckMayWait(const std::string& what) const;
  Callbacks& callbacks() { return *callbacks_; }
  AsioExecutor& executor() { return *executor_; }

 private:
  Link(Options options, const BudgetBounds& bounds);

  Options options_;  // only Create and Reconfigure use it
  const std::shared_ptr<prometheus::Registry> registry_;
  const std::unique_ptr<LinkMetrics> metrics_;
  const std::unique_ptr<AsioExecutor> executor_;
  // Used on the link's thread only.
  std::unique_ptr<LinkLoop> loop_;
  std::unique_ptr<LinkMonitor> monitor_;

  std::unique_ptr<Callbacks> callbacks_;
  std::unique_ptr<LeasedBudget> lease_;  // null: the budget is not leased
};

}  // namespace sluice
