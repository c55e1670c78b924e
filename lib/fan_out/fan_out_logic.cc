#include "lib/fan_out/fan_out_logic.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/algorithm/container.h"

namespace sluice {

FanOutLogic::FanOutLogic(Options options, std::vector<std::vector<size_t>> workers_by_ask)
    : options_(std::move(options)),
      attempts_(workers_by_ask.size()),
      timers_(options_.attempt_timeout, options_.hedge_after),
      quorum_(workers_by_ask.size(), options_.success_quorum, options_.fail_limit) {
  asks_.reserve(workers_by_ask.size());
  for (std::vector<size_t>& workers : workers_by_ask) {
    assert(!workers.empty());
    asks_.emplace_back().workers = std::move(workers);
  }
  result_.asked = asks_.size();
}

void FanOutLogic::Start(TimePoint now, FanOutActions& actions) {
  if (!SLUICE_HOLDS(breaches(), !started_)) return;
  started_ = true;
  if (!decided_ && now >= options_.deadline) {
    Expire(now, actions);
  } else if (!decided_) {
    for (size_t ask = 0; ask < asks_.size(); ++ask) Send(ask, Reason::kFirst, actions);
  }
  AfterEvent(actions);
}

void FanOutLogic::OnSent(TimePoint now, size_t attempt, FanOutActions& actions) {
  if (!attempts_.OnSent(now, attempt)) return;
  if (attempts_[attempt].live) {
    if (timers_.hedges() && AskOf(attempt).MayHedge(options_.max_attempts)) timers_.AddHedge(now, attempt);
    timers_.StartTimeout(now, attempt, attempts_[attempt].time);
  }
  AfterEvent(actions);
}

void FanOutLogic::OnReady(TimePoint /*now*/, size_t attempt, FanOutActions& actions) {
  attempts_.OnReady(attempt);
  AfterEvent(actions);
}

void FanOutLogic::OnHeld(TimePoint now, size_t attempt, HeldFor held_for) {
  timers_.StopTimeout(now, attempt, attempts_[attempt].time);
  attempts_.OnHeld(now, attempt, held_for);
  if (held_for != HeldFor::kNothing || !attempts_[attempt].MayTimeOut()) return;
  timers_.StartTimeout(now, attempt, attempts_[attempt].time);
}

void FanOutLogic::OnMessage(TimePoint /*now*/, size_t attempt, FanOutActions& actions) {
  if (!attempts_.OnMessage(attempt, actions)) return;
  if (options_.server_streaming) {
    if (AskOf(attempt).accepting == attempt) {
      Accept(attempt, actions);
    } else {
      LetIn(attempts_[attempt].made.ask, actions);
    }
  }
  AfterEvent(actions);
}

void FanOutLogic::OnAccepted(TimePoint now, size_t attempt, const Status& verdict, FanOutActions& actions) {
  if (!attempts_.OnVerdict(attempt)) return;
  const Attempts::State& state = attempts_[attempt];
  if (state.live && verdict.ok()) {
    if (!AskOf(attempt).claimed) Claim(attempt, actions);
    if (!state.failure.ok()) {
      Conclude(attempt, state.concluded, actions);
      FailAsk(state.made.ask, attempt, state.failure);
    } else if (state.ended && state.unsettled == 0) {
      CompleteAsk(attempt, actions);
    }
  } else if (state.live) {
    Conclude(attempt, decided_ ? AttemptOutcome::kNotNeeded : AttemptOutcome::kRefused, actions);
    if (!decided_) Replace(now, attempt, verdict, /*retry=*/true, actions);
  }
  Release(attempt, actions);
  AfterEvent(actions);
}

void FanOutLogic::OnEnded(TimePoint now, size_t attempt, const Status& status, FanOutActions& actions) {
  if (!attempts_.OnEnded(now, attempt, status)) return;
  const Attempts::State& state = attempts_[attempt];
  if (state.Counts()) {
    if (!status.ok()) {
      Fail(now, attempt, status, /*retry=*/absl::c_linear_search(options_.retry_on, status.code()), actions);
    } else if (AskOf(attempt).accepting != attempt) {
      LetIn(state.made.ask, actions);
    } else if (state.unsettled == 0) {
      CompleteAsk(attempt, actions);
    }
  }
  AfterEvent(actions);
}

void FanOutLogic::Cancel(TimePoint /*now*/, const Status& why, FanOutActions& actions) {
  SLUICE_HOLDS(breaches(), !why.ok());
  if (decided_) return;
  Decide(why, actions);
  AfterEvent(actions);
}

void FanOutLogic::OnTimer(TimePoint now, FanOutActions& actions) {
  if (!started_ || decided_ || expired_) return;
  if (now >= options_.deadline) {
    Expire(now, actions);
  } else {
    // Handle timeouts first: an attempt that times out gets a successor, which is better than a rival.
    while (!decided_) {
      const std::optional<size_t> attempt = timers_.TakeTimeout(now);
      if (!attempt.has_value()) break;
      if (!attempts_[*attempt].MayTimeOut()) continue;
      Fail(now, *attempt, absl::DeadlineExceededError("the attempt took longer than attempt_timeout"), /*retry=*/true,
           actions);
      DecideIfSettled(actions);
    }
    while (!decided_) {
      const std::optional<size_t> attempt = timers_.TakeHedge(now);
      if (!attempt.has_value()) break;
      Hedge(*attempt, actions);
    }
  }
  AfterEvent(actions);
}

TimePoint FanOutLogic::NextTimer() const {
  if (!started_ || decided_ || expired_) return TimePoint::max();
  return std::min(options_.deadline, timers_.Next());
}

void FanOutLogic::Send(size_t ask, Reason reason, FanOutActions& actions) {
  AskState& state = asks_[ask];
  const size_t worker = state.workers[state.made++ % state.workers.size()];
  state.live.push_back(attempts_.Send(
      {.ask = ask, .worker = worker, .hedge = reason == Reason::kHedge, .retry = reason == Reason::kRetry}, actions));
  if (reason == Reason::kRetry) ++result_.retries;
  if (reason == Reason::kHedge) ++result_.hedges;
}

bool FanOutLogic::TakeRetry(TimePoint now, size_t ask) {
  const AskState& state = asks_[ask];
  const auto ready = [&](size_t rival) { return attempts_[rival].ready; };
  const size_t most = options_.max_attempts;
  const bool may =
      state.live.empty() ? state.MayRetry(most) : state.MayHedge(most) && absl::c_none_of(state.live, ready);
  if (now >= options_.deadline || !may) return false;
  if (options_.retries == nullptr || options_.retries->Spend()) return true;
  ++result_.retries_refused;
  return false;
}

// A hedge is counted and sent in the same event. If it were counted first and sent later, it could prevent a retry of
// its ask, and then not be sent.
void FanOutLogic::Hedge(size_t attempt, FanOutActions& actions) {
  const AskState& ask = AskOf(attempt);
  const auto ready = [&](size_t rival) { return attempts_[rival].ready; };
  if (!attempts_[attempt].live || absl::c_any_of(ask.live, ready) || !ask.MayHedge(options_.max_attempts)) return;
  if (options_.hedges == nullptr || options_.hedges->Spend()) {
    Send(attempts_[attempt].made.ask, Reason::kHedge, actions);
  } else {
    ++result_.hedges_refused;
  }
}

// Accepts the messages of the oldest attempt that has messages to accept. If the quorum is full, the ask waits.
void FanOutLogic::LetIn(size_t ask, FanOutActions& actions) {
  AskState& state = asks_[ask];
  if (decided_ || state.outcome != AskOutcome::kPending || state.accepting.has_value()) return;
  const auto first = absl::c_find_if(state.live, [&](size_t attempt) {
    return attempts_[attempt].Whole() || (options_.server_streaming && attempts_[attempt].kept > 0);
  });
  if (first == state.live.end()) return;
  if (options_.server_streaming || !quorum_.Full()) return Accept(*first, actions);
  if (!std::exchange(state.waits_for_quorum, true)) quorum_.Wait(ask);
}

void FanOutLogic::Accept(size_t attempt, FanOutActions& actions) {
  AskState& ask = AskOf(attempt);
  if (!ask.accepting.has_value()) quorum_.OnVerdictBegins();
  ask.accepting = attempt;
  if (attempts_[attempt].kept > 0) return attempts_.HandOver(attempt, actions);
  // An empty stream.
  Claim(attempt, actions);
  CompleteAsk(attempt, actions);
}

void FanOutLogic::Claim(size_t attempt, FanOutActions& actions) {
  AskState& ask = AskOf(attempt);
  ask.claimed = true;
  for (size_t i = 0; i < ask.live.size();) {
    if (ask.live[i] == attempt) {
      ++i;
    } else {
      Conclude(ask.live[i], AttemptOutcome::kNotNeeded, actions);
    }
  }
}

void FanOutLogic::CompleteAsk(size_t attempt, FanOutActions& actions) {
  Conclude(attempt, AttemptOutcome::kResponded, actions);
  AskOf(attempt).Close(AskOutcome::kResponded, quorum_, breaches());
  quorum_.OnResponse();
  ++result_.answered;
  if (attempts_[attempt].made.hedge) ++result_.hedges_won;
}

// After an attempt has failed, and its last message has its verdict, accepts a rival or a successor instead.
void FanOutLogic::Release(size_t attempt, FanOutActions& actions) {
  AskState& ask = AskOf(attempt);
  if (attempts_[attempt].live || attempts_[attempt].unsettled > 0 || ask.accepting != attempt) return;
  ask.accepting.reset();
  quorum_.OnVerdictEnds();
  LetIn(attempts_[attempt].made.ask, actions);
}

// Whether the application may have accepted a message of the attempt while its verdict is still unknown here. If it
// has, no other response may be accepted for the ask.
bool FanOutLogic::VerdictDecides(size_t attempt) {
  const AskState& ask = AskOf(attempt);
  return !options_.replaceable && ask.accepting == attempt && !ask.claimed && attempts_[attempt].unsettled > 0;
}

void FanOutLogic::Fail(TimePoint now, size_t attempt, const Status& status, bool retry, FanOutActions& actions) {
  const Attempts::State& state = attempts_[attempt];
  // The worker and the schedule also end the attempt at the deadline, and their event may come before this timer.
  const bool at_deadline = absl::IsDeadlineExceeded(status) && now >= options_.deadline;
  const bool link_is_late = at_deadline && state.time.LinkIsLate(now);
  const Status why = link_is_late ? state.WhyLate(now) : status;
  const AttemptOutcome outcome = link_is_late ? AttemptOutcome::kExpired : AttemptOutcome::kFailed;
  if (VerdictDecides(attempt)) return attempts_.FailUnlessRefused(attempt, why, outcome, actions);
  Conclude(attempt, outcome, actions);
  Replace(now, attempt, why, retry, actions);
  Release(attempt, actions);
}

// Sends a retry to the next worker, even if a rival is open, because the rival may hang. If no retry is possible, waits
// for an open rival, or fails the ask.
void FanOutLogic::Replace(TimePoint now, size_t attempt, const Status& status, bool retry, FanOutActions& actions) {
  const size_t ask = attempts_[attempt].made.ask;
  const bool final = std::exchange(asks_[ask].claimed, false) && !options_.replaceable;
  if (!final && retry && TakeRetry(now, ask)) return Send(ask, Reason::kRetry, actions);
  if (asks_[ask].live.empty()) FailAsk(ask, attempt, status);
}

// `attempt`: the one that failed last.
void FanOutLogic::FailAsk(size_t ask, std::optional<size_t> attempt, const Status& status) {
  asks_[ask].Close(AskOutcome::kFailed, quorum_, breaches());
  const size_t worker = attempt.has_value() ? attempts_[*attempt].made.worker : asks_[ask].workers.front();
  result_.failures.push_back({.ask = ask, .worker = worker, .attempt = attempt, .status = status});
  quorum_.OnFailure();
  if (quorum_.Unreachable() && !result_.decisive.has_value()) result_.decisive = result_.failures.back();
}

// All pending asks fail together: the list of failures then contains every late worker.
void FanOutLogic::Expire(TimePoint now, FanOutActions& actions) {
  expired_ = true;
  for (size_t ask = 0; ask < asks_.size(); ++ask) {
    if (asks_[ask].outcome == AskOutcome::kPending) ExpireAsk(now, ask, actions);
  }
}

// A whole response still counts if it is accepted: it arrived in time, and may have been accepted already.
void FanOutLogic::ExpireAsk(TimePoint now, size_t ask, FanOutActions& actions) {
  AskState& state = asks_[ask];
  const bool whole = absl::c_any_of(state.live, [&](size_t attempt) { return attempts_[attempt].Whole(); });
  std::optional<size_t> latest;
  if (!state.live.empty()) latest = state.live.back();
  const Status status = latest.has_value() ? attempts_[*latest].WhyLate(now) : Attempts::State().WhyLate(now);
  for (size_t i = 0; i < state.live.size();) {
    const size_t attempt = state.live[i];
    const Attempts::State& late = attempts_[attempt];
    const AttemptOutcome outcome = late.time.LinkIsLate(now) ? AttemptOutcome::kExpired : AttemptOutcome::kFailed;
    if (late.Whole()) {
      ++i;
    } else if (whole && VerdictDecides(attempt)) {
      if (late.failure.ok()) attempts_.FailUnlessRefused(attempt, status, outcome, actions);
      ++i;
    } else if (whole) {
      Conclude(attempt, AttemptOutcome::kNotNeeded, actions);
    } else {
      Conclude(attempt, late.failure.ok() ? outcome : late.concluded, actions);
    }
  }
  if (!whole) FailAsk(ask, latest, status);
}

// Ends an attempt that no longer counts, or whose response is the response of its ask.
void FanOutLogic::Conclude(size_t attempt, AttemptOutcome outcome, FanOutActions& actions) {
  AskState& ask = AskOf(attempt);
  const auto* const live = absl::c_find(ask.live, attempt);
  if (!SLUICE_HOLDS(breaches(), live != ask.live.end())) return;
  ask.live.erase(live);
  attempts_.Conclude(attempt, outcome, actions);
}

void FanOutLogic::AskState::Close(AskOutcome as, Quorum& quorum, Breaches& breaches) {
  if (!SLUICE_HOLDS(breaches, outcome == AskOutcome::kPending && live.empty())) return;
  outcome = as;
  if (accepting.has_value()) quorum.OnVerdictEnds();
  accepting.reset();
}

void FanOutLogic::DecideIfSettled(FanOutActions& actions) {
  if (decided_) return;
  if (result_.decisive.has_value()) {
    Decide(result_.decisive->status, actions);
  } else if (quorum_.Reached()) {
    Decide(absl::OkStatus(), actions);
  }
}

// Ends the open attempts. A whole response under kAccept may already have been accepted, so its verdict still counts.
void FanOutLogic::Decide(const Status& status, FanOutActions& actions) {
  decided_ = true;
  result_.status = status;
  for (AskState& ask : asks_) {
    for (size_t i = 0; i < ask.live.size();) {
      if (ask.accepting == ask.live[i] && attempts_[ask.live[i]].Whole()) {
        ++i;
      } else {
        Conclude(ask.live[i], AttemptOutcome::kNotNeeded, actions);
      }
    }
  }
}

// Ends the handling of each event.
void FanOutLogic::AfterEvent(FanOutActions& actions) {
  DecideIfSettled(actions);
  while (!decided_) {
    const std::optional<size_t> ask = quorum_.TakeWaiting();
    if (!ask.has_value()) break;
    asks_[*ask].waits_for_quorum = false;
    LetIn(*ask, actions);
    DecideIfSettled(actions);
  }
  timers_.SkipEnded(attempts_);
  if (!started_ || !decided_ || ended_ || !attempts_.settled()) return;
  ended_ = true;
  result_.cancelled = result_.asked - result_.answered - result_.failures.size();
  actions.push_back({FanOutAction::Kind::kEnd});
}

}  // namespace sluice
