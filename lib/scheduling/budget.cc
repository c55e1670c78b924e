#include "lib/scheduling/budget.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "sluice/plan.h"

#include "absl/time/time.h"
#include "lib/scheduling/saturating_add.h"

namespace sluice {

// The abort may reach the worker half a round trip later. Bytes that the worker sends until then travel for the other
// half, and may find the buffer full. The sum is rounded up.
std::chrono::nanoseconds DrainTime(const LinkProfile& profile, int64_t budget_bytes) {
  const int64_t bytes = std::max(BufferBudgetBytes(profile), budget_bytes);
  const double seconds = static_cast<double>(bytes) / profile.capacity_bytes_per_second;
  return absl::ToChronoNanoseconds(absl::Ceil(profile.propagation_rtt + absl::Seconds(seconds), absl::Nanoseconds(1)));
}

namespace {

int64_t StartingBytes(const ScheduleOptions& options) {
  if (options.policy == SchedulePolicy::kUnscheduled) return std::numeric_limits<int64_t>::max();
  return options.budget_bytes.value_or(BufferBudgetBytes(options.profile));
}

}  // namespace

Budget::Budget(const ScheduleOptions& options)
    : limited_(options.policy != SchedulePolicy::kUnscheduled),
      bytes_(StartingBytes(options)),
      link_bytes_(bytes_),
      plan_bytes_(bytes_) {
  SetOptions(options);
}

void Budget::SetPacer() {
  const int64_t start_bytes = start_bytes_.value_or(BufferBudgetBytes(profile_));
  pacer_.Set(paced_, profile_, {.bytes = bytes_, .link_bytes = link_bytes_, .start_bytes = start_bytes});
}

void Budget::SetOptions(const ScheduleOptions& options) {
  const bool limited = options.policy != SchedulePolicy::kUnscheduled;
  if (std::exchange(limited_, limited) != limited) {
    bytes_ = link_bytes_ = plan_bytes_ = StartingBytes(options);
    may_exceed_ = true;
    class_weights_.clear();
    until_ = TimePoint::max();
  }
  start_bytes_ = options.budget_bytes;
  profile_ = options.profile;
  paced_ = options.paced && limited;
  packet_bytes_ = BufferCostBytes(profile_, profile_.packet_payload_bytes);
  SetPacer();
}

// An unlimited link has no budget to drain, but it may get one before the bytes have arrived.
std::chrono::nanoseconds Budget::drain_time() const {
  return DrainTime(profile_, limited_ ? link_bytes_ : start_bytes_.value_or(0));
}

void Budget::DrainAborted(TimePoint now, int64_t cost_bytes) {
  Charge(cost_bytes, 0);
  draining_.push_back({SaturatingAdd(now, drain_time()), cost_bytes});
  draining_bytes_ += cost_bytes;
}

void Budget::Drain(TimePoint now) {
  while (!draining_.empty() && draining_.front().until <= now) {
    Charge(-draining_.front().cost_bytes, 0);
    draining_bytes_ -= draining_.front().cost_bytes;
    draining_.pop_front();
  }
}

void Budget::Set(int64_t bytes) {
  Lend({.bytes = bytes, .link_bytes = bytes, .plan_bytes = bytes, .may_exceed = true});
}

void Budget::Lend(const BudgetLease& lease) {
  if (!limited_) return;
  bytes_ = lease.bytes;
  link_bytes_ = lease.link_bytes;
  plan_bytes_ = lease.plan_bytes;
  may_exceed_ = lease.may_exceed;
  class_weights_ = lease.class_weights;
  until_ = lease.until;
  SetPacer();
}

void Budget::EndLease(TimePoint now) {
  if (!limited_ || now < until_) return;
  bytes_ = 0;
  may_exceed_ = false;
  SetPacer();
}

}  // namespace sluice
