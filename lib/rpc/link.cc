#include "sluice/link.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/rpc/link_driver.h"
#include "lib/telemetry/aggregator_metrics.h"

namespace sluice {

absl::StatusOr<std::shared_ptr<Link>> Link::Create(const LinkProfile& profile) {
  return Create(Options{.schedule = {.profile = profile}});
}

absl::StatusOr<std::shared_ptr<Link>> Link::Create(Options options) {
  constexpr int kMaxThreads = 64;
  if (options.completion_threads < 1 || options.completion_threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("completion_threads is ", options.completion_threads, "; it must be between 1 and ", kMaxThreads));
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
const prometheus::Collectable& Link::gauges() const {
  return *metrics_;
}
prometheus::Registry& Link::registry() {
  return *options_.registry;
}

}  // namespace sluice
