#include "sluice/link.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "sluice/plan.h"

#include "absl/strings/str_cat.h"
#include "lib/rpc/link_driver.h"
#include "lib/rpc/link_monitor.h"
#include "lib/rpc/link_share.h"
#include "lib/rpc/receive_window.h"
#include "lib/telemetry/aggregator_metrics.h"

namespace sluice {
namespace {

absl::Status CheckReceiveWindow(int64_t bytes) {
  constexpr int64_t kMostBytes = int64_t{1} << 30;
  if (bytes == 0) return absl::OkStatus();
  if (bytes < kMinReceiveWindowBytes || bytes > kMostBytes) {
    return absl::InvalidArgumentError(absl::StrCat("receive_window_bytes is ", bytes, "; it must be 0 or between ",
                                                   kMinReceiveWindowBytes, " and ", kMostBytes));
  }
  if (!CanBoundReceiveWindow()) {
    return absl::UnimplementedError(
        absl::StrCat("receive_window_bytes is ", bytes, "; with this version of gRPC it must be 0 or not set"));
  }
  return absl::OkStatus();
}

constexpr int64_t kSafeBudgetBytes = 16 * 1024;
constexpr int64_t kFloorFrames = 8;
constexpr int64_t kUnknownLimitBytes = 4 << 20;

// For a profile that is valid. Fields that are not given go along with those that are.
BudgetBounds BoundsOf(const LinkSchedule::Options& schedule, const Link::BudgetOptions& options, bool shared) {
  const LinkProfile& profile = schedule.profile;
  const int64_t buffer = BufferBudgetBytes(profile);
  const int64_t start = schedule.budget_bytes.value_or(options.buffer_known ? buffer : kSafeBudgetBytes);
  const bool bounded = options.floor_bytes.has_value() || options.limit_bytes.has_value();
  const bool fixed =
      shared || schedule.discipline == Discipline::kUnscheduled || (schedule.budget_bytes.has_value() && !bounded);
  BudgetBounds bounds{.capacity_bytes_per_second = profile.capacity_bytes_per_second};
  bounds.limit_bytes =
      options.limit_bytes.value_or(std::max(start, options.buffer_known ? buffer : kUnknownLimitBytes));
  // At least 1, so that a limit below that is what is refused.
  bounds.floor_bytes = options.floor_bytes.value_or(
      std::max<int64_t>(1, std::min({start, kFloorFrames * profile.frame_bytes, bounds.limit_bytes})));
  if (fixed) bounds.floor_bytes = bounds.limit_bytes = start;
  const int64_t start_within = std::min(std::max(start, bounds.floor_bytes), bounds.limit_bytes);
  bounds.start_bytes = bounds.reference_bytes = start_within;
  return bounds;
}

BudgetBounds BoundsOf(const Link::Options& options) {
  return BoundsOf(options.schedule, options.budget, options.share.has_value());
}

// 0: not bounded.
int64_t WindowOf(const Link::Options& options) {
  const LinkSchedule::Options& schedule = options.schedule;
  if (options.receive_window_bytes.has_value()) return *options.receive_window_bytes;
  if (schedule.discipline == Discipline::kUnscheduled || !CanBoundReceiveWindow()) return 0;
  return DefaultReceiveWindowBytes(schedule.profile,
                                   schedule.budget_bytes.value_or(BufferBudgetBytes(schedule.profile)));
}

// What follows from options that are valid: those that were not given, and the bounds of the budget.
BudgetBounds FillIn(Link::Options& options) {
  const BudgetBounds bounds = BoundsOf(options);
  if (options.schedule.discipline != Discipline::kUnscheduled) options.schedule.budget_bytes = bounds.start_bytes;
  options.receive_window_bytes = WindowOf(options);
  if (options.receive_window_bytes > 0 && !options.schedule.max_in_flight_per_call_bytes.has_value()) {
    options.schedule.max_in_flight_per_call_bytes = options.receive_window_bytes;
  }
  return bounds;
}

bool SameShare(const std::optional<SharedLink>& a, const std::optional<SharedLink>& b) {
  if (!a.has_value() || !b.has_value()) return a.has_value() == b.has_value();
  return std::tie(a->socket, a->application, a->weight, a->start_bytes) ==
         std::tie(b->socket, b->application, b->weight, b->start_bytes);
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
  constexpr int kMaxThreads = 64;
  if (options.completion_threads < 1 || options.completion_threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("completion_threads is ", options.completion_threads, "; it must be between 1 and ", kMaxThreads));
  }
  // Checks the profile, which the bounds are made from.
  if (absl::Status valid = LinkSchedule::Create(options.schedule).status(); !valid.ok()) return valid;
  if (absl::Status valid = BoundsOf(options).Validate(); !valid.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("budget.", valid.message()));
  }
  if (absl::Status valid = LinkShare::Validate(options); !valid.ok()) return valid;
  return CheckReceiveWindow(options.receive_window_bytes.value_or(0));
}

absl::StatusOr<std::shared_ptr<Link>> Link::Create(Options options) {
  if (absl::Status valid = Validate(options); !valid.ok()) return valid;
  const BudgetBounds bounds = FillIn(options);
  absl::StatusOr<LinkSchedule> schedule = LinkSchedule::Create(options.schedule);
  if (!schedule.ok()) return schedule.status();
  if (!options.registry) options.registry = std::make_shared<prometheus::Registry>();
  return std::shared_ptr<Link>(new Link(std::move(options), bounds, *std::move(schedule)));
}

Link::Link(Options options, const BudgetBounds& bounds, LinkSchedule schedule)
    : options_(std::move(options)),
      registry_(options_.registry),
      metrics_(std::make_unique<AggregatorMetrics>(*registry_)),
      driver_(std::make_unique<LinkDriver>(std::move(schedule), *metrics_, options_.completion_threads)),
      monitor_(std::make_unique<LinkMonitor>(*driver_, bounds, options_.watch_connections, options_.budget.on_change)) {
  if (options_.share.has_value()) share_ = std::make_unique<LinkShare>(*driver_, *options_.share, bounds.start_bytes);
  metrics_->SetGaugeSource([this] {
    AggregatorGauges gauges = driver_->Gauges();
    monitor_->FillGauges(gauges);
    if (share_) gauges.leased = share_->leased();
    return gauges;
  });
}

// The gauges look at the driver, so they are the first to be forgotten. Calls that wait need leases to end.
Link::~Link() {
  metrics_->SetGaugeSource(nullptr);
  driver_->AwaitIdle();
}

absl::Status Link::SetBudget(int64_t budget_bytes) {
  if (share_) return absl::FailedPreconditionError("the budget is leased; it cannot be set");
  return monitor_->FixBudget(budget_bytes);
}

absl::Status Link::Reconfigure(Options options) {
  if (absl::Status valid = Validate(options); !valid.ok()) return valid;
  const BudgetBounds bounds = FillIn(options);
  {
    absl::MutexLock lock(&mutex_);
    if (!options.registry) options.registry = registry_;
    absl::Status same = CheckSame("completion_threads", options.completion_threads == options_.completion_threads);
    same.Update(CheckSame("watch_connections", options.watch_connections == options_.watch_connections));
    same.Update(CheckSame("share", SameShare(options.share, options_.share)));
    same.Update(CheckSame("registry", options.registry == registry_));
    if (!same.ok()) return same;
  }
  // Not under the lock: calls that end by it may ask the link for anything.
  if (absl::Status status = driver_->Reconfigure(options.schedule); !status.ok()) return status;
  {
    absl::MutexLock lock(&mutex_);
    options_ = std::move(options);
  }
  if (!share_) monitor_->Reconfigure(bounds);  // the budget of a link that is shared is a lease
  return absl::OkStatus();
}

ScheduleState Link::State() const {
  return driver_->State();
}
const absl::Status& Link::telemetry_status() const {
  return monitor_->status();
}
LinkSchedule::Options Link::schedule_options() const {
  return driver_->options();
}
std::optional<ReceiveWindow> Link::receive_window() const {
  absl::MutexLock lock(&mutex_);
  const int64_t bytes = options_.receive_window_bytes.value_or(0);
  if (bytes == 0) return std::nullopt;
  return ReceiveWindow{.bytes = bytes, .packet_payload_bytes = options_.schedule.profile.packet_payload_bytes};
}
const prometheus::Collectable& Link::gauges() const {
  return *metrics_;
}
prometheus::Registry& Link::registry() {
  return *registry_;
}

}  // namespace sluice
