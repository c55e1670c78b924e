#include "lib/fan_out/attempt_timers.h"

#include <algorithm>

#include "lib/scheduling/saturating_add.h"

namespace sluice {
namespace {

std::optional<std::chrono::nanoseconds> ToChrono(std::optional<absl::Duration> time) {
  if (!time.has_value()) return std::nullopt;
  return absl::ToChronoNanoseconds(*time);
}

}  // namespace

AttemptTimers::AttemptTimers(absl::Duration attempt_timeout, std::optional<absl::Duration> hedge_after)
    : attempt_timeout_(attempt_timeout == absl::InfiniteDuration() ? std::nullopt : ToChrono(attempt_timeout)),
      hedge_after_(ToChrono(hedge_after)) {}

void AttemptTimers::AddHedge(TimePoint now, size_t attempt) {
  hedges_.push_back({SaturatingAdd(now, *hedge_after_), attempt});
}

void AttemptTimers::StartTimeout(TimePoint now, size_t attempt, const AttemptTime& time) {
  if (attempt_timeout_.has_value()) timeouts_.emplace(TimeoutOf(now, time), attempt);
}

void AttemptTimers::StopTimeout(TimePoint now, size_t attempt, const AttemptTime& time) {
  if (attempt_timeout_.has_value()) timeouts_.erase({TimeoutOf(now, time), attempt});
}

// The result stays the same while the worker's time runs.
TimePoint AttemptTimers::TimeoutOf(TimePoint now, const AttemptTime& time) const {
  return SaturatingAdd(now - time.OfWorker(now), *attempt_timeout_);
}

std::optional<size_t> AttemptTimers::TakeTimeout(TimePoint now) {
  if (timeouts_.empty() || timeouts_.begin()->first > now) return std::nullopt;
  return timeouts_.extract(timeouts_.begin()).value().second;
}

std::optional<size_t> AttemptTimers::TakeHedge(TimePoint now) {
  if (next_hedge_ == hedges_.size() || hedges_[next_hedge_].at > now) return std::nullopt;
  return hedges_[next_hedge_++].attempt;
}

TimePoint AttemptTimers::Next() const {
  TimePoint next = TimePoint::max();
  if (next_hedge_ < hedges_.size()) next = hedges_[next_hedge_].at;
  if (!timeouts_.empty()) next = std::min(next, timeouts_.begin()->first);
  return next;
}

}  // namespace sluice
