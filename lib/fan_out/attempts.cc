#include "lib/fan_out/attempts.h"

#include <utility>

namespace sluice {

using Kind = FanOutAction::Kind;

absl::Status Attempts::State::WhyLate(TimePoint now) const {
  if (time.LinkIsLate(now)) return time.WhyLinkIsLate(now, "room in callback_memory_bytes");
  return absl::DeadlineExceededError(ready ? "the response was ready, but not all of it came in time"
                                           : "the response was not ready before the deadline");
}

size_t Attempts::Send(const Attempt& made, FanOutActions& actions) {
  const size_t attempt = states_.size();
  states_.emplace_back().made = made;
  ++open_;
  actions.push_back({Kind::kSend, attempt});
  return attempt;
}

bool Attempts::OnSent(TimePoint now, size_t attempt) {
  State& state = states_[attempt];
  if (!SLUICE_HOLDS(breaches_, !state.ended && !state.time.sent())) return false;
  state.time.OnSent(now);
  return true;
}

bool Attempts::OnMessage(size_t attempt, FanOutActions& actions) {
  State& state = states_[attempt];
  if (!SLUICE_HOLDS(breaches_, !state.ended) || !state.Counts()) {
    actions.push_back({Kind::kDrop, attempt, 1});
    return false;
  }
  state.ready = true;
  ++state.kept;
  return true;
}

bool Attempts::OnVerdict(size_t attempt) {
  State& state = states_[attempt];
  if (!SLUICE_HOLDS(breaches_, state.unsettled > 0)) return false;
  --state.unsettled;
  --unsettled_;
  Publish(state);
  return true;
}

bool Attempts::OnEnded(TimePoint now, size_t attempt, const absl::Status& status) {
  State& state = states_[attempt];
  if (!SLUICE_HOLDS(breaches_, !state.ended)) return false;
  state.ready |= status.ok();
  state.ended = true;
  if (state.time.sent()) state.made.of_link = state.time.OfLink(now);
  --open_;
  Publish(state);
  return true;
}

void Attempts::HandOver(size_t attempt, FanOutActions& actions) {
  State& state = states_[attempt];
  state.unsettled += state.kept;
  unsettled_ += state.kept;
  actions.push_back({Kind::kAccept, attempt, std::exchange(state.kept, 0)});
}

void Attempts::FailUnlessRefused(size_t attempt, absl::Status failure, AttemptOutcome outcome, FanOutActions& actions) {
  State& state = states_[attempt];
  state.failure = std::move(failure);
  state.concluded = outcome;
  Cancel(attempt, actions);
}

void Attempts::Conclude(size_t attempt, AttemptOutcome outcome, FanOutActions& actions) {
  State& state = states_[attempt];
  if (!SLUICE_HOLDS(breaches_, state.live)) return;
  state.live = false;
  state.concluded = outcome;
  Cancel(attempt, actions);
  if (state.kept > 0) actions.push_back({Kind::kDrop, attempt, std::exchange(state.kept, 0)});
  Publish(state);
}

void Attempts::Cancel(size_t attempt, FanOutActions& actions) {
  State& state = states_[attempt];
  if (!state.ended && !std::exchange(state.cancelled, true)) actions.push_back({Kind::kCancel, attempt});
}

void Attempts::Publish(State& state) {
  if (!state.live && state.ended && state.unsettled == 0) state.made.outcome = state.concluded;
}

}  // namespace sluice
