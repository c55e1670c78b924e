#include "sluice/link.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "sluice/plan.h"

#include "absl/strings/str_cat.h"
#include "lib/link/budget_lessor.h"
#include "lib/link/callback_memory.h"
#include "lib/link/callbacks.h"
#include "lib/link/link_gauges.h"
#include "lib/link/link_loop.h"
#include "lib/link/link_metrics.h"
#include "lib/link/link_monitor.h"
#include "lib/net/asio_executor.h"

namespace sluice {
namespace {

constexpr int64_t kSafeBudgetBytes = 16 * 1024;
constexpr int64_t kFloorFrames = 8;
constexpr int64_t kLimitBytes = 4 << 20;
constexpr int kMaxThreads = 64;
constexpr int64_t kMaxWorkerConnections = 16;

// The profile must be valid. Unset bounds follow from the set ones.
BudgetBounds BoundsOf(const ScheduleOptions& schedule, const Link::BudgetOptions& options, bool shared) {
  const LinkProfile& profile = schedule.profile;
  const int64_t buffer = BufferBudgetBytes(profile);
  const int64_t start = schedule.budget_bytes.value_or(options.buffer_known ? buffer : kSafeBudgetBytes);
  const bool bounded = options.floor_bytes.has_value() || options.limit_bytes.has_value();
  const bool fixed =
      shared || schedule.policy == SchedulePolicy::kUnscheduled || (schedule.budget_bytes.has_value() && !bounded);
  BudgetBounds bounds{.capacity_bytes_per_second = profile.capacity_bytes_per_second};
  bounds.limit_bytes = options.limit_bytes.value_or(std::max({start, buffer, kLimitBytes}));
  bounds.buffer_known = options.buffer_known;
  // At least 1, so that validation rejects a lower limit and not this floor.
  bounds.floor_bytes = options.floor_bytes.value_or(
      std::max<int64_t>(1, std::min({start, kFloorFrames * profile.frame_bytes, bounds.limit_bytes})));
  if (fixed) bounds.floor_bytes = bounds.limit_bytes = start;
  const int64_t start_within = std::min(std::max(start, bounds.floor_bytes), bounds.limit_bytes);
  bounds.start_bytes = bounds.reference_bytes = start_within;
  return bounds;
}

BudgetBounds BoundsOf(const Link::Options& options) {
  return BoundsOf(options.schedule, options.budget, options.share != nullptr);
}

// Sets the missing options, and returns the bounds of the budget. The options must be valid.
BudgetBounds FillIn(Link::Options& options) {
  const BudgetBounds bounds = BoundsOf(options);
  if (options.schedule.policy != SchedulePolicy::kUnscheduled) options.schedule.budget_bytes = bounds.start_bytes;
  return bounds;
}

int64_t CallbackMemoryOf(const Link::Options& options, const BudgetBounds& bounds) {
  return options.callback_memory_bytes.value_or(CallbackMemory::DefaultBytes(bounds.limit_bytes));
}

bool SameShare(const std::shared_ptr<const BudgetLessor>& a, const std::shared_ptr<const BudgetLessor>& b) {
  return a == nullptr || b == nullptr ? a == b : a->SameAs(*b);
}

absl::Status CheckShare(const Link::Options& options) {
  if (options.share == nullptr) return absl::OkStatus();
  if (absl::Status valid = options.share->Validate(); !valid.ok()) return valid;
  if (options.schedule.policy == SchedulePolicy::kUnscheduled) {
    return absl::InvalidArgumentError("share: a link that is shared needs a policy other than unscheduled");
  }
  if (options.budget.floor_bytes.has_value() || options.budget.limit_bytes.has_value()) {
    return absl::InvalidArgumentError("share: the budget is leased; give no budget floor and no budget limit");
  }
  return absl::OkStatus();
}

absl::Status CheckSame(absl::string_view field, bool same) {
  if (same) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " of a link that is in use cannot change"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Link>> Link::Create(const LinkProfile& profile) {
  return Create(Options{.schedule = {.profile = profile}});
}

absl::Status Link::Validate(const Options& options) {
  // Check the profile first: the bounds follow from it.
  if (absl::Status valid = options.schedule.Validate(); !valid.ok()) return valid;
  if (absl::Status valid = BoundsOf(options).Validate(); !valid.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("budget.", valid.message()));
  }
  if (options.threads < 1 || options.threads > kMaxThreads) {
    return absl::InvalidArgumentError(absl::StrCat("threads: ", options.threads, " is outside of 1 to ", kMaxThreads));
  }
  if (options.callback_threads < 1 || options.callback_threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("callback_threads: ", options.callback_threads, " is outside of 1 to ", kMaxThreads));
  }
  if (options.worker_connections < 1 || options.worker_connections > kMaxWorkerConnections) {
    return absl::InvalidArgumentError(absl::StrCat("worker_connections: ", options.worker_connections,
                                                   " is outside of 1 to ", kMaxWorkerConnections));
  }
  if (options.callback_memory_bytes.has_value() &&
      (*options.callback_memory_bytes < 1 || *options.callback_memory_bytes > CallbackMemory::kMaxBytes)) {
    return absl::InvalidArgumentError(absl::StrCat("callback_memory_bytes: ", *options.callback_memory_bytes,
                                                   " is outside of 1 to ", CallbackMemory::kMaxBytes));
  }
  if (absl::Status valid = options.outlier_detection.Validate(); !valid.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("outlier_detection.", valid.message()));
  }
  return CheckShare(options);
}

absl::StatusOr<std::shared_ptr<Link>> Link::Create(Options options) {
  if (absl::Status valid = Validate(options); !valid.ok()) return valid;
  const BudgetBounds bounds = FillIn(options);
  if (!options.registry) options.registry = std::make_shared<prometheus::Registry>();
  return std::shared_ptr<Link>(new Link(std::move(options), bounds));
}

Link::Link(Options options, const BudgetBounds& bounds)
    : options_(std::move(options)),
      registry_(options_.registry),
      metrics_(std::make_unique<LinkMetrics>(*registry_)),
      executor_(std::make_unique<AsioExecutor>(AsioExecutor::Options{
          .on_timer_lateness =
              [this](std::chrono::nanoseconds lateness) { metrics_->ObserveTimerLateness(absl::FromChrono(lateness)); },
          .stream_threads = static_cast<size_t>(options_.threads - 1)})) {
  executor_->Await([&] {
    loop_ = std::make_unique<LinkLoop>(*executor_, options_.schedule, *metrics_);
    loop_->callback_memory().SetBound(CallbackMemoryOf(options_, bounds));
    loop_->workers().set_max_connections(static_cast<size_t>(options_.worker_connections));
    loop_->set_outlier_detection(options_.outlier_detection);
    loop_->schedule_run().SetBreachWatcher(options_.on_invariant_breach);
    monitor_ = std::make_unique<LinkMonitor>(*loop_, bounds, options_.watch_connections, options_.budget.on_change,
                                             options_.on_worker_faults, options_.on_profile_mismatch);
  });
  if (options_.inline_callbacks) {
    callbacks_ = std::make_unique<InlineCallbacks>();
  } else {
    callbacks_ = std::make_unique<CallbackThreads>(*loop_, options_.callback_threads);
  }
  if (options_.share != nullptr) lease_ = options_.share->Attach(*loop_, *executor_, bounds.start_bytes);
  metrics_->SetGaugeSource([this] {
    LinkGauges gauges;
    Await([&](LinkLoop& loop) {
      gauges = GaugesOf(loop);
      monitor_->FillGauges(gauges);
    });
    if (lease_) gauges.leased = lease_->in_force();
    return gauges;
  });
}

// Remove the gauges first: they read all other members.
Link::~Link() {
  metrics_->SetGaugeSource(nullptr);
  lease_.reset();
  // Wait for the link's thread: it may still be handing over the callback that released this link.
  executor_->Await([] {});
  callbacks_.reset();
  executor_->Await([this] {
    monitor_.reset();
    loop_.reset();
  });
}

void Link::Post(std::function<void(LinkLoop&)> task) const {
  executor_->Post([loop = loop_.get(), task = std::move(task)] { task(*loop); });
}

void Link::Await(absl::FunctionRef<void(LinkLoop&)> task) const {
  executor_->Await([this, task] { task(*loop_); });
}

absl::Status Link::CheckMayWait(const std::string& what) const {
  if (!executor_->IsThisThread() && !callbacks_->IsThisThread()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(what, " in a callback of its link would wait for ever: it needs the thread that it runs on"));
}

absl::Status Link::SetBudget(int64_t budget_bytes) {
  if (lease_) return absl::FailedPreconditionError("the budget is leased; it cannot be set");
  absl::Status status;
  Await([&](LinkLoop&) { status = monitor_->FixBudget(budget_bytes); });
  return status;
}

absl::Status Link::Reconfigure(Options options) {
  if (absl::Status valid = Validate(options); !valid.ok()) return valid;
  const BudgetBounds bounds = FillIn(options);
  if (!options.registry) options.registry = registry_;
  absl::Status same = CheckSame("inline_callbacks", options.inline_callbacks == options_.inline_callbacks);
  same.Update(CheckSame("callback_threads", options.callback_threads == options_.callback_threads));
  same.Update(CheckSame("threads", options.threads == options_.threads));
  same.Update(CheckSame("watch_connections", options.watch_connections == options_.watch_connections));
  same.Update(CheckSame("share", SameShare(options.share, options_.share)));
  same.Update(CheckSame("registry", options.registry == registry_));
  if (!same.ok()) return same;
  absl::Status status;
  Await([&](LinkLoop& loop) {
    status = loop.Reconfigure(options.schedule);
    if (status.ok()) loop.callback_memory().SetBound(CallbackMemoryOf(options, bounds));
    if (status.ok()) loop.workers().set_max_connections(static_cast<size_t>(options.worker_connections));
    if (status.ok()) loop.set_outlier_detection(options.outlier_detection);
    // A leased budget does not follow the profile.
    if (status.ok() && !lease_) monitor_->Reconfigure(bounds);
  });
  if (status.ok()) options_ = std::move(options);
  return status;
}

ScheduleState Link::State() const {
  ScheduleState state;
  Await([&](LinkLoop& loop) { state = loop.schedule().State(); });
  return state;
}

ScheduleOptions Link::schedule_options() const {
  ScheduleOptions options;
  Await([&](LinkLoop& loop) { options = loop.schedule().options(); });
  return options;
}

std::vector<WorkerSummary> Link::WorkerSummaries() const {
  std::vector<WorkerSummary> summaries;
  Await([&](LinkLoop& loop) {
    const LinkSchedule& schedule = loop.schedule();
    summaries = loop.worker_table().Summaries([&schedule](uint32_t worker) { return schedule.Load(worker); });
    std::map<std::string_view, std::vector<std::string>> faults;
    monitor_->faults().ForEach([&faults](const std::string& address, WorkerFault fault) {
      faults[address].emplace_back(WorkerFaultName(fault));
    });
    for (WorkerSummary& summary : summaries) {
      if (const auto found = faults.find(summary.address); found != faults.end()) summary.faults = found->second;
    }
  });
  return summaries;
}

prometheus::Collectable& Link::gauges() const {
  return *metrics_;
}

prometheus::Registry& Link::registry() {
  return *registry_;
}

}  // namespace sluice
