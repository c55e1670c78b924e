#include "lib/fan_out/fan_out_tally.h"

#include <cassert>
#include <utility>

namespace sluice {

FanOutTally::FanOutTally(Limits limits, std::vector<std::vector<size_t>> workers_by_ask) : limits_(limits) {
  asks_.reserve(workers_by_ask.size());
  for (std::vector<size_t>& workers : workers_by_ask) asks_.push_back({.workers = std::move(workers)});
}

std::optional<size_t> FanOutTally::NextAttempt(size_t ask, bool hedge) {
  AskState& state = asks_[ask];
  if (state.outcome != Outcome::kPending || state.next_worker == state.workers.size()) return std::nullopt;
  if (state.next_worker > 0) ++(hedge ? hedges_ : retries_);
  attempts_.push_back({.ask = ask, .worker = state.workers[state.next_worker++], .hedge = hedge});
  ++state.open_attempts;
  return attempts_.size() - 1;
}

void FanOutTally::OnReady(size_t attempt) {
  if (!attempts_[attempt].open) return;
  attempts_[attempt].ready = true;
  ++asks_[attempts_[attempt].ask].ready_attempts;
}

bool FanOutTally::MayHedge(size_t attempt) const {
  const AskState& state = asks_[attempts_[attempt].ask];
  const bool waited_for = attempts_[attempt].open && state.ready_attempts == 0 && !state.winner.has_value();
  return waited_for && state.outcome == Outcome::kPending && state.next_worker < state.workers.size();
}

bool FanOutTally::Wanted(size_t attempt) const {
  const AskState& state = asks_[attempts_[attempt].ask];
  return state.outcome == Outcome::kPending && (!state.winner.has_value() || *state.winner == attempt);
}

bool FanOutTally::Claim(size_t attempt) {
  if (!Wanted(attempt)) return false;
  asks_[attempts_[attempt].ask].winner = attempt;
  return true;
}

bool FanOutTally::Claimed(size_t attempt) const {
  return asks_[attempts_[attempt].ask].winner == attempt;
}

std::vector<size_t> FanOutTally::OpenRivals(size_t attempt) const {
  std::vector<size_t> rivals;
  const size_t ask = attempts_[attempt].ask;
  if (asks_[ask].open_attempts < 2) return rivals;
  for (size_t i = 0; i < attempts_.size(); ++i) {
    if (i != attempt && attempts_[i].ask == ask && attempts_[i].open) rivals.push_back(i);
  }
  return rivals;
}

void FanOutTally::OnAnswered(size_t attempt) {
  AskState& state = asks_[attempts_[attempt].ask];
  assert(state.winner == attempt && state.outcome == Outcome::kPending);
  OnDropped(attempt);
  state.outcome = Outcome::kAnswered;
  ++answered_;
  if (attempts_[attempt].hedge) ++hedges_won_;
}

FanOutTally::Next FanOutTally::OnFailed(size_t attempt) {
  OnDropped(attempt);
  const AskState& state = asks_[attempts_[attempt].ask];
  if (!Wanted(attempt)) return Next::kNothing;
  if (!Claimed(attempt)) {
    if (state.open_attempts > 0) return Next::kNothing;
    if (state.next_worker < state.workers.size()) return Next::kRetry;
  }
  GiveUp(attempts_[attempt].ask);
  return Next::kAskFailed;
}

void FanOutTally::OnDropped(size_t attempt) {
  Attempt& ended = attempts_[attempt];
  ended.open = false;
  --asks_[ended.ask].open_attempts;
  if (ended.ready) --asks_[ended.ask].ready_attempts;
}

void FanOutTally::GiveUp(size_t ask) {
  asks_[ask].outcome = Outcome::kFailed;
  ++failed_;
}

bool FanOutTally::enough() const {
  return limits_.success_quorum.has_value() && answered_ >= *limits_.success_quorum;
}

bool FanOutTally::too_many_failures() const {
  if (failed_ > limits_.fail_limit) return true;
  return limits_.success_quorum.has_value() && asks_.size() - failed_ < *limits_.success_quorum;
}

}  // namespace sluice
