#include "lib/fan_out/fan_out_logic.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/algorithm/container.h"
#include "lib/scheduling/saturating_add.h"

namespace sluice {

using Kind = FanOutLogic::Action::Kind;

FanOutLogic::FanOutLogic(Options options, std::vector<std::vector<size_t>> workers_by_ask)
    : options_(std::move(options)) {
  asks_.reserve(workers_by_ask.size());
  for (std::vector<size_t>& workers : workers_by_ask) {
    assert(!workers.empty());
    asks_.emplace_back().workers = std::move(workers);
  }
  assert(asks_.empty() || options_.success_quorum.value_or(0) <= asks_.size());
  attempts_.reserve(asks_.size());
  result_.asked = asks_.size();
}

void FanOutLogic::Start(TimePoint now, Actions& actions) {
  assert(!started_);
  started_ = true;
  if (!decided_ && now >= options_.deadline) {
    Expire(now, actions);
  } else if (!decided_) {
    for (size_t ask = 0; ask < asks_.size(); ++ask) Send(ask, Reason::kFirst, actions);
  }
  AfterEvent(actions);
}

void FanOutLogic::OnSent(TimePoint now, size_t attempt, Actions& actions) {
  AttemptState& state = attempts_[attempt];
  assert(!state.ended && !state.time.sent());
  state.time.OnSent(now);
  if (state.live) {
    if (options_.hedge_after.has_value() && HasUnaskedWorker(AskOf(attempt))) {
      hedge_times_.push_back({SaturatingAdd(now, absl::ToChronoNanoseconds(*options_.hedge_after)), attempt});
    }
    if (has_attempt_timeout()) timeouts_.emplace(TimeoutOf(now, attempt), attempt);
  }
  AfterEvent(actions);
}

void FanOutLogic::OnReady(TimePoint /*now*/, size_t attempt, Actions& actions) {
  MarkReady(attempt);
  AfterEvent(actions);
}

void FanOutLogic::OnMessage(TimePoint /*now*/, size_t attempt, Actions& actions) {
  AttemptState& state = attempts_[attempt];
  assert(!state.ended);
  if (!state.live || !state.failure.ok()) {
    actions.push_back({Kind::kDrop, attempt, 1});
    return;
  }
  MarkReady(attempt);
  ++state.kept;
  if (options_.server_streaming) {
    if (AskOf(attempt).accepting == attempt) {
      Accept(attempt, actions);
    } else {
      LetIn(state.made.ask, actions);
    }
  }
  AfterEvent(actions);
}

void FanOutLogic::OnAccepted(TimePoint now, size_t attempt, const Status& verdict, Actions& actions) {
  AttemptState& state = attempts_[attempt];
  assert(state.unsettled > 0);
  --state.unsettled;
  --unsettled_;
  if (state.live && verdict.ok()) {
    if (!AskOf(attempt).claimed) Claim(attempt, actions);
    if (!state.failure.ok()) {
      const Status failure = state.failure;
      Conclude(attempt, state.concluded, actions);
      FailAsk(attempt, failure);
    } else if (state.ended && state.unsettled == 0) {
      Answer(attempt, actions);
    }
  } else if (state.live) {
    Refuse(now, attempt, verdict, actions);
  }
  Release(attempt, actions);
  Publish(attempt);
  AfterEvent(actions);
}

void FanOutLogic::OnEnded(TimePoint now, size_t attempt, const Status& status, Actions& actions) {
  assert(!attempts_[attempt].ended);
  if (status.ok()) MarkReady(attempt);
  attempts_[attempt].ended = true;
  --open_;
  if (attempts_[attempt].live && attempts_[attempt].failure.ok()) {
    if (!status.ok()) {
      Fail(now, attempt, status, /*retry=*/absl::c_linear_search(options_.retry_on, status.code()), actions);
    } else if (AskOf(attempt).accepting != attempt) {
      LetIn(attempts_[attempt].made.ask, actions);
    } else if (attempts_[attempt].unsettled == 0) {
      Answer(attempt, actions);
    }
  }
  Publish(attempt);
  AfterEvent(actions);
}

void FanOutLogic::Cancel(TimePoint /*now*/, const Status& why, Actions& actions) {
  assert(!why.ok());
  if (decided_) return;
  Decide(why, actions);
  AfterEvent(actions);
}

void FanOutLogic::OnTimer(TimePoint now, Actions& actions) {
  if (!started_ || decided_ || expired_) return;
  if (now >= options_.deadline) {
    Expire(now, actions);
  } else {
    // Handle timeouts first: an attempt that times out gets a successor, which is better than a rival.
    while (!decided_ && !timeouts_.empty() && timeouts_.begin()->first <= now) {
      const size_t attempt = timeouts_.extract(timeouts_.begin()).value().second;
      if (!attempts_[attempt].MayTimeOut()) continue;
      Fail(now, attempt, absl::DeadlineExceededError("the attempt took longer than attempt_timeout"), /*retry=*/true,
           actions);
      DecideIfSettled(actions);
    }
    for (; !decided_ && next_hedge_ < hedge_times_.size() && hedge_times_[next_hedge_].at <= now; ++next_hedge_) {
      Hedge(hedge_times_[next_hedge_].attempt, actions);
    }
  }
  AfterEvent(actions);
}

TimePoint FanOutLogic::NextTimer() const {
  TimePoint next = TimePoint::max();
  if (!started_ || decided_ || expired_) return next;
  next = options_.deadline;
  if (next_hedge_ < hedge_times_.size()) next = std::min(next, hedge_times_[next_hedge_].at);
  if (!timeouts_.empty()) next = std::min(next, timeouts_.begin()->first);
  return next;
}

void FanOutLogic::MarkReady(size_t attempt) {
  AttemptState& state = attempts_[attempt];
  if (state.live && !std::exchange(state.ready, true)) ++AskOf(attempt).ready;
}

bool FanOutLogic::Whole(size_t attempt) const {
  const AttemptState& state = attempts_[attempt];
  return state.live && state.ended && state.failure.ok();
}

// Whether the application may have accepted a message of the attempt while its verdict is still unknown here. If it
// has, no other response may be accepted for the ask.
bool FanOutLogic::VerdictDecides(size_t attempt) {
  const AskState& ask = AskOf(attempt);
  return !options_.replaceable && ask.accepting == attempt && !ask.claimed && attempts_[attempt].unsettled > 0;
}

void FanOutLogic::Send(size_t ask, Reason reason, Actions& actions) {
  AskState& state = asks_[ask];
  const size_t attempt = attempts_.size();
  attempts_.emplace_back().made = {.ask = ask,
                                   .worker = state.workers[state.made++ % state.workers.size()],
                                   .hedge = reason == Reason::kHedge,
                                   .retry = reason == Reason::kRetry};
  state.live.push_back(attempt);
  ++open_;
  if (reason == Reason::kRetry) ++result_.retries;
  if (reason == Reason::kHedge) ++result_.hedges;
  actions.push_back({Kind::kSend, attempt});
}

bool FanOutLogic::TakeRetry(TimePoint now, size_t ask) {
  const AskState& state = asks_[ask];
  const size_t most = options_.max_attempts > 0 ? options_.max_attempts : state.workers.size();
  if (now >= options_.deadline || state.made >= most) return false;
  if (options_.retries == nullptr || options_.retries->Spend()) return true;
  ++result_.retries_refused;
  return false;
}

// A hedge goes only to a worker that was not asked yet: asking a slow worker twice does not make it faster.
bool FanOutLogic::HasUnaskedWorker(const AskState& ask) const {
  const size_t workers = ask.workers.size();
  return ask.made < (options_.max_attempts > 0 ? std::min(workers, options_.max_attempts) : workers);
}

// A hedge is counted and sent in the same event. If it were counted first and sent later, it could prevent a retry of
// its ask, and then not be sent.
void FanOutLogic::Hedge(size_t attempt, Actions& actions) {
  const AskState& ask = AskOf(attempt);
  if (!attempts_[attempt].live || ask.ready > 0 || !HasUnaskedWorker(ask)) return;
  if (options_.hedges == nullptr || options_.hedges->Spend()) {
    Send(attempts_[attempt].made.ask, Reason::kHedge, actions);
  } else {
    ++result_.hedges_refused;
  }
}

void FanOutLogic::Fail(TimePoint now, size_t attempt, const Status& status, bool retry, Actions& actions) {
  AttemptState& state = attempts_[attempt];
  // The worker and the schedule also end the attempt at the deadline, and their event may come before this timer.
  const bool at_deadline = absl::IsDeadlineExceeded(status) && now >= options_.deadline;
  const bool link_is_late = at_deadline && state.time.LinkIsLate(now);
  const Status why = link_is_late ? LateStatus(now, state) : status;
  const AttemptOutcome outcome = link_is_late ? AttemptOutcome::kExpired : AttemptOutcome::kFailed;
  if (VerdictDecides(attempt)) {
    state.failure = why;
    state.concluded = outcome;
    CancelAttempt(attempt, actions);
    return;
  }
  Conclude(attempt, outcome, actions);
  Replace(now, attempt, why, retry, actions);
  Release(attempt, actions);
}

void FanOutLogic::Refuse(TimePoint now, size_t attempt, const Status& verdict, Actions& actions) {
  Conclude(attempt, decided_ ? AttemptOutcome::kNotNeeded : AttemptOutcome::kRefused, actions);
  if (!decided_) Replace(now, attempt, verdict, /*retry=*/true, actions);
}

// Waits for an open rival if one exists. Otherwise sends a retry to the next worker, or fails the ask.
void FanOutLogic::Replace(TimePoint now, size_t attempt, const Status& status, bool retry, Actions& actions) {
  const size_t ask = attempts_[attempt].made.ask;
  const bool final = std::exchange(asks_[ask].claimed, false) && !options_.replaceable;
  if (!final && !asks_[ask].live.empty()) return;
  if (!final && retry && TakeRetry(now, ask)) return Send(ask, Reason::kRetry, actions);
  FailAsk(attempt, status);
}

void FanOutLogic::FailAsk(size_t attempt, const Status& status) {
  const Attempt& made = attempts_[attempt].made;
  FailAsk({.ask = made.ask, .worker = made.worker, .attempt = attempt, .status = status});
}

void FanOutLogic::FailAsk(Failure failure) {
  CloseAsk(failure.ask, AskOutcome::kFailed);
  result_.failures.push_back(std::move(failure));
  const size_t failed = result_.failures.size();
  const bool too_many = failed > options_.fail_limit || asks_.size() - failed < options_.success_quorum.value_or(0);
  if (too_many && !result_.decisive.has_value()) result_.decisive = result_.failures.back();
}

void FanOutLogic::CancelAttempt(size_t attempt, Actions& actions) {
  AttemptState& state = attempts_[attempt];
  if (!state.ended && !std::exchange(state.cancelled, true)) actions.push_back({Kind::kCancel, attempt});
}

// Ends an attempt that no longer counts, or that has answered its ask.
void FanOutLogic::Conclude(size_t attempt, AttemptOutcome outcome, Actions& actions) {
  AttemptState& state = attempts_[attempt];
  assert(state.live);
  state.live = false;
  state.concluded = outcome;
  AskState& ask = AskOf(attempt);
  ask.live.erase(absl::c_find(ask.live, attempt));
  if (state.ready) --ask.ready;
  CancelAttempt(attempt, actions);
  if (state.kept > 0) actions.push_back({Kind::kDrop, attempt, std::exchange(state.kept, 0)});
  Publish(attempt);
}

void FanOutLogic::Publish(size_t attempt) {
  AttemptState& state = attempts_[attempt];
  if (!state.live && state.ended && state.unsettled == 0) state.made.outcome = state.concluded;
}

void FanOutLogic::CloseAsk(size_t ask, AskOutcome outcome) {
  AskState& state = asks_[ask];
  assert(state.outcome == AskOutcome::kPending && state.live.empty());
  state.outcome = outcome;
  if (state.accepting.has_value()) --asks_accepting_;
  state.accepting.reset();
}

void FanOutLogic::DecideIfSettled(Actions& actions) {
  if (decided_) return;
  const bool enough = options_.success_quorum.has_value() && result_.answered >= *options_.success_quorum;
  const bool complete = result_.answered + result_.failures.size() == asks_.size();
  if (result_.decisive.has_value()) {
    Decide(result_.decisive->status, actions);
  } else if (enough || complete) {
    Decide(absl::OkStatus(), actions);
  }
}

// Ends the open attempts. A whole response under kAccept may already have been accepted, so its verdict still counts.
void FanOutLogic::Decide(const Status& status, Actions& actions) {
  decided_ = true;
  result_.status = status;
  for (AskState& ask : asks_) {
    for (size_t i = 0; i < ask.live.size();) {
      if (ask.accepting == ask.live[i] && Whole(ask.live[i])) {
        ++i;
      } else {
        Conclude(ask.live[i], AttemptOutcome::kNotNeeded, actions);
      }
    }
  }
}

// Ends the handling of each event.
void FanOutLogic::AfterEvent(Actions& actions) {
  DecideIfSettled(actions);
  LetInWaiting(actions);
  while (next_hedge_ < hedge_times_.size() && !attempts_[hedge_times_[next_hedge_].attempt].live) ++next_hedge_;
  while (!timeouts_.empty() && !attempts_[timeouts_.begin()->second].MayTimeOut()) timeouts_.erase(timeouts_.begin());
  if (!started_ || !decided_ || ended_ || open_ > 0 || unsettled_ > 0) return;
  ended_ = true;
  result_.cancelled = result_.asked - result_.answered - result_.failures.size();
  actions.push_back({Kind::kEnd});
}

}  // namespace sluice
