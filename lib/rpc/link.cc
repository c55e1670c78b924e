#include "sluice/link.h"

#include <utility>

#include "sluice/plan.h"

#include "absl/strings/str_cat.h"
#include "lib/rpc/link_driver.h"
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

// 0: not bounded.
int64_t WindowOf(const Link::Options& options) {
  const LinkSchedule::Options& schedule = options.schedule;
  if (options.receive_window_bytes.has_value()) return *options.receive_window_bytes;
  if (schedule.discipline == Discipline::kUnscheduled || !CanBoundReceiveWindow()) return 0;
  return DefaultReceiveWindowBytes(schedule.profile,
                                   schedule.budget_bytes.value_or(BufferBudgetBytes(schedule.profile)));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Link>> Link::Create(const LinkProfile& profile) {
  return Create(Options{.schedule = {.profile = profile}});
}

absl::StatusOr<std::shared_ptr<Link>> Link::Create(Options options) {
  constexpr int kMaxThreads = 64;
  if (options.completion_threads < 1 || options.completion_threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("completion_threads is ", options.completion_threads, "; it must be between 1 and ", kMaxThreads));
  }
  // Checks the profile, which the window is made from.
  if (absl::Status valid = LinkSchedule::Create(options.schedule).status(); !valid.ok()) return valid;
  if (absl::Status valid = CheckReceiveWindow(options.receive_window_bytes.value_or(0)); !valid.ok()) return valid;
  options.receive_window_bytes = WindowOf(options);
  if (options.receive_window_bytes > 0 && !options.schedule.max_in_flight_per_call_bytes.has_value()) {
    options.schedule.max_in_flight_per_call_bytes = options.receive_window_bytes;
  }
  absl::StatusOr<LinkSchedule> schedule = LinkSchedule::Create(options.schedule);
  if (!schedule.ok()) return schedule.status();
  if (!options.registry) options.registry = std::make_shared<prometheus::Registry>();
  return std::shared_ptr<Link>(new Link(std::move(options), *std::move(schedule)));
}

Link::Link(Options options, LinkSchedule schedule)
    : options_(std::move(options)),
      metrics_(std::make_unique<AggregatorMetrics>(*options_.registry)),
      driver_(std::make_unique<LinkDriver>(std::move(schedule), *metrics_, options_.completion_threads)) {
  metrics_->SetGaugeSource([this] { return driver_->Gauges(); });
}

// The gauges look at the driver, so it is the first to be forgotten and the first to go.
Link::~Link() {
  metrics_->SetGaugeSource(nullptr);
}

absl::Status Link::SetBudget(int64_t budget_bytes) {
  return driver_->SetBudget(budget_bytes);
}
ScheduleState Link::State() const {
  return driver_->State();
}
const LinkSchedule::Options& Link::schedule_options() const {
  return driver_->options();
}
std::optional<ReceiveWindow> Link::receive_window() const {
  const int64_t bytes = options_.receive_window_bytes.value_or(0);
  if (bytes == 0) return std::nullopt;
  return ReceiveWindow{.bytes = bytes, .packet_payload_bytes = schedule_options().profile.packet_payload_bytes};
}
const prometheus::Collectable& Link::gauges() const {
  return *metrics_;
}
prometheus::Registry& Link::registry() {
  return *options_.registry;
}

}  // namespace sluice
