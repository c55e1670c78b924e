// Which attempts are late, and whether the worker or the link is to blame.

#include "absl/algorithm/container.h"
#include "lib/fan_out/fan_out_logic.h"
#include "lib/scheduling/saturating_add.h"

namespace sluice {

void FanOutLogic::OnHeld(TimePoint now, size_t attempt, HeldFor held_for) {
  AttemptState& state = attempts_[attempt];
  if (has_attempt_timeout()) timeouts_.erase({TimeoutOf(now, attempt), attempt});
  state.time.OnHeld(now, held_for);
  if (held_for == HeldFor::kNothing && has_attempt_timeout() && state.MayTimeOut()) {
    timeouts_.emplace(TimeoutOf(now, attempt), attempt);
  }
}

// The result stays the same while the worker's time runs.
TimePoint FanOutLogic::TimeoutOf(TimePoint now, size_t attempt) const {
  return SaturatingAdd(now - attempts_[attempt].time.OfWorker(now),
                       absl::ToChronoNanoseconds(options_.attempt_timeout));
}

absl::Status FanOutLogic::LateStatus(TimePoint now, const AttemptState& state) {
  if (state.time.LinkIsLate(now)) return state.time.WhyLinkIsLate(now, "room in callback_memory_bytes");
  return absl::DeadlineExceededError(state.ready ? "the response was ready, but not all of it came in time"
                                                 : "the response was not ready before the deadline");
}

// All pending asks fail together: the list of failures then contains every late worker.
void FanOutLogic::Expire(TimePoint now, Actions& actions) {
  expired_ = true;
  for (size_t ask = 0; ask < asks_.size(); ++ask) {
    if (asks_[ask].outcome == AskOutcome::kPending) ExpireAsk(now, ask, actions);
  }
}

// A whole response still counts if it is accepted: it arrived in time, and may have been accepted already.
void FanOutLogic::ExpireAsk(TimePoint now, size_t ask, Actions& actions) {
  AskState& state = asks_[ask];
  const bool whole = absl::c_any_of(state.live, [&](size_t attempt) { return Whole(attempt); });
  std::optional<size_t> latest;
  if (!state.live.empty()) latest = state.live.back();
  const AttemptState last =
      latest.has_value() ? attempts_[*latest] : AttemptState{.made = {.worker = state.workers.front()}};
  const Status status = LateStatus(now, last);
  for (size_t i = 0; i < state.live.size();) {
    const size_t attempt = state.live[i];
    AttemptState& late = attempts_[attempt];
    if (Whole(attempt)) {
      ++i;
      continue;
    }
    if (late.failure.ok()) {
      late.concluded = late.time.LinkIsLate(now) ? AttemptOutcome::kExpired : AttemptOutcome::kFailed;
    }
    if (whole && VerdictDecides(attempt)) {
      if (late.failure.ok()) late.failure = status;
      CancelAttempt(attempt, actions);
      ++i;
    } else {
      Conclude(attempt, whole ? AttemptOutcome::kNotNeeded : late.concluded, actions);
    }
  }
  if (!whole) FailAsk({.ask = ask, .worker = last.made.worker, .attempt = latest, .status = status});
}

}  // namespace sluice
