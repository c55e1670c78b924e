#include "tests/unit/fan_out/fan_out_logic_oracle.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "gtest/gtest.h"

namespace sluice::testing {

using Kind = FanOutAction::Kind;

void FanOutLogicOracle::Check(const FanOutLogic& logic, const Event& event, const FanOutActions& actions) {
  EXPECT_FALSE(ended_) << "an event after the end";
  Take(event);
  for (size_t i = 0; i < attempts_.size(); ++i) attempts_[i].outcome = logic.attempt(i).outcome;
  for (const FanOutAction& action : actions) CheckAction(logic, event, action);
  if (::testing::Test::HasFailure()) return;
  CheckRetry(logic, event);
  CheckHedges(logic, event, actions);
  CheckUnderWay(logic);
  CheckDecided(logic);
  started_ = started_ || event.kind == EventKind::kStart;
  const bool over =
      started_ && absl::c_all_of(attempts_, [](const Attempt& a) { return a.ended.has_value() && a.unsettled == 0; });
  EXPECT_EQ(ended_, over) << "it ends with the last OnEnded and OnAccepted, and not before";
  if (logic.decided() || event.kind == EventKind::kTimer) {
    EXPECT_GT(logic.NextTimer(), event.now);
  }
  decided_before_ = logic.decided();
  failures_before_ = logic.result().failures.size();
  hedges_refused_before_ = logic.result().hedges_refused;
}

void FanOutLogicOracle::Take(const Event& event) {
  if (event.kind == EventKind::kCancel) cancelled_ = cancelled_ || !decided_before_;
  if (event.attempt >= attempts_.size()) return;
  Attempt& attempt = attempts_[event.attempt];
  const bool counted = attempt.Live() || (event.kind == EventKind::kAccepted && UnderVerdict(attempt));
  switch (event.kind) {
    case EventKind::kSent:
      attempt.sent = event.now;
      sent_.push_back(event.attempt);
      break;
    case EventKind::kReady:
      attempt.ready = true;
      break;
    case EventKind::kHeld:
      attempt.held_since = event.now;
      break;
    case EventKind::kGranted:
      attempt.held += event.now - *attempt.held_since;
      attempt.held_since.reset();
      break;
    case EventKind::kMessage:
      attempt.ready = true;
      ++attempt.brought;
      ++attempt.kept;
      break;
    case EventKind::kAccepted:
      --attempt.unsettled;
      if (!event.status.ok()) attempt.refused = true;
      if (!attempt.refused) ++attempt.accepted;
      break;
    case EventKind::kEnded:
      attempt.ended = event.status;
      attempt.ready = attempt.ready || event.status.ok();
      break;
    case EventKind::kStart:
    case EventKind::kCancel:
    case EventKind::kTimer:
      break;
  }
  const bool failed = counted && !attempt.Live() && !decided_before_;
  if (failed && MustRetry(event, attempt)) must_retry_ = attempt.ask;
}

void FanOutLogicOracle::CheckAction(const FanOutLogic& logic, const Event& event, const FanOutAction& action) {
  EXPECT_FALSE(ended_) << "an action after kEnd";
  if (action.kind == Kind::kEnd) {
    ended_ = true;
    return;
  }
  if (action.kind == Kind::kSend) {
    EXPECT_EQ(action.attempt, attempts_.size());
    CheckSend(logic, event, logic.attempt(action.attempt));
    return;
  }
  ASSERT_LT(action.attempt, attempts_.size());
  Attempt& attempt = attempts_[action.attempt];
  switch (action.kind) {
    case Kind::kAccept:
      CheckAccept(action);
      break;
    case Kind::kDrop:
      EXPECT_GT(action.messages, 0u);
      ASSERT_LE(action.messages, attempt.kept);
      attempt.kept -= action.messages;
      attempt.dropped += action.messages;
      break;
    case Kind::kCancel:
      EXPECT_FALSE(attempt.ended.has_value());
      EXPECT_FALSE(attempt.cancelled) << "twice";
      attempt.cancelled = true;
      CheckLate(logic, event, attempt);
      if (event.kind == EventKind::kTimer && !logic.decided()) {
        EXPECT_FALSE(must_retry_.has_value()) << "not retried";
      }
      if (event.kind == EventKind::kTimer && MustRetry(event, attempt)) must_retry_ = attempt.ask;
      break;
    case Kind::kSend:
    case Kind::kEnd:
      break;
  }
}

// The worker's time does not include the time in which its response waits for a grant.
void FanOutLogicOracle::CheckLate(const FanOutLogic& logic, const Event& event, Attempt& attempt) const {
  if (event.kind != EventKind::kTimer) return;
  if (event.now >= options_.deadline) {
    const TimePoint sent = attempt.sent.value_or(event.now);
    const auto worker = attempt.held_since.value_or(event.now) - sent - attempt.held;
    attempt.expired = !attempt.sent.has_value() || attempt.held_since.has_value() || attempt.held > worker;
  } else if (!logic.decided()) {
    EXPECT_FALSE(attempt.held_since.has_value());
    EXPECT_GE(event.now - *attempt.sent - attempt.held, absl::ToChronoNanoseconds(options_.attempt_timeout));
  }
}

void FanOutLogicOracle::CheckSend(const FanOutLogic& logic, const Event& event, const sluice::Attempt& made) {
  const std::vector<size_t> before = Of(made.ask);
  const std::vector<size_t>& workers = workers_[made.ask];
  const size_t most = options_.max_attempts > 0 ? options_.max_attempts : workers.size();
  EXPECT_LT(before.size(), most);
  EXPECT_EQ(made.worker, workers[before.size() % workers.size()]);
  EXPECT_FALSE(decided_before_ || cancelled_);
  EXPECT_LT(event.now, options_.deadline);
  EXPECT_FALSE(Responded(made.ask) || Failed(logic, made.ask));
  EXPECT_EQ(made.hedge || made.retry, event.kind != EventKind::kStart);
  EXPECT_FALSE(made.hedge && made.retry);
  if (made.retry) {
    ++retries_;
    EXPECT_EQ(must_retry_, made.ask);
    must_retry_.reset();
  }
  if (made.hedge) {
    ++hedges_;
    EXPECT_EQ(event.kind, EventKind::kTimer);
    EXPECT_LT(before.size(), workers.size()) << "to a worker that was asked";
    bool due = false;
    EXPECT_FALSE(HasReady(made.ask));
    for (size_t rival : before) {
      const Attempt& attempt = attempts_[rival];
      due = due || (attempt.Live() && attempt.sent.has_value() &&
                    *attempt.sent + absl::ToChronoNanoseconds(*options_.hedge_after) <= event.now);
    }
    EXPECT_TRUE(due);
  }
  attempts_.push_back({.ask = made.ask});
}

void FanOutLogicOracle::CheckAccept(const FanOutAction& action) {
  Attempt& attempt = attempts_[action.attempt];
  EXPECT_GT(action.messages, 0u);
  ASSERT_LE(action.messages, attempt.kept);
  EXPECT_FALSE(decided_before_ || cancelled_) << "nothing is accepted any more";
  EXPECT_TRUE(attempt.Live());
  EXPECT_FALSE(Responded(attempt.ask));
  for (size_t other : Of(attempt.ask)) {
    if (other == action.attempt) continue;
    EXPECT_EQ(attempts_[other].unsettled, 0u) << "one attempt at a time";
    if (!options_.replaceable) {
      EXPECT_EQ(attempts_[other].accepted, 0u) << "messages of two attempts are mixed";
    }
  }
  if (!options_.server_streaming) {
    EXPECT_TRUE(attempt.Whole());
  }
  attempt.kept -= action.messages;
  attempt.unsettled += action.messages;
}

void FanOutLogicOracle::CheckRetry(const FanOutLogic& logic, const Event& event) {
  // A decision in a timer event cancels attempts that have not failed.
  if (event.kind != EventKind::kTimer || !logic.decided()) {
    EXPECT_FALSE(must_retry_.has_value()) << "not retried";
  }
  must_retry_.reset();
  const bool ended_badly = event.kind == EventKind::kEnded && !event.status.ok();
  const bool refused = event.kind == EventKind::kAccepted && !event.status.ok();
  if (!(ended_badly || refused) || logic.result().failures.size() == failures_before_) return;
  const size_t ask = attempts_[event.attempt].ask;
  EXPECT_EQ(logic.result().failures.back().ask, ask);
  for (size_t rival : Of(ask)) EXPECT_FALSE(attempts_[rival].Live()) << "a rival is open";
}

// Each hedge that is due is sent, or refused because no token is left.
void FanOutLogicOracle::CheckHedges(const FanOutLogic& logic, const Event& event, const FanOutActions& actions) {
  const size_t refused = logic.result().hedges_refused - hedges_refused_before_;
  if (event.kind != EventKind::kTimer || !options_.hedge_after.has_value() || logic.decided()) {
    if (event.kind != EventKind::kTimer) {
      EXPECT_EQ(refused, 0u);
    }
    return;
  }
  if (event.now >= options_.deadline) return;
  std::vector<size_t> made(workers_.size());
  for (const Attempt& attempt : attempts_) ++made[attempt.ask];
  size_t sent = 0;
  for (const FanOutAction& action : actions) {
    if (action.kind != Kind::kSend || !logic.attempt(action.attempt).hedge) continue;
    ++sent;
    --made[logic.attempt(action.attempt).ask];
  }
  // A refused hedge leaves its worker to the next hedge, so check them in the order of the logic.
  size_t due = 0;
  size_t tokens = sent;
  for (; next_sent_ < sent_.size(); ++next_sent_) {
    const Attempt& attempt = attempts_[sent_[next_sent_]];
    if (*attempt.sent + absl::ToChronoNanoseconds(*options_.hedge_after) > event.now) break;
    size_t most = workers_[attempt.ask].size();
    if (options_.max_attempts > 0) most = std::min(most, options_.max_attempts);
    if (!attempt.Live() || HasReady(attempt.ask) || made[attempt.ask] >= most) continue;
    ++due;
    if (tokens == 0) continue;
    --tokens;
    ++made[attempt.ask];
  }
  EXPECT_EQ(due, sent + refused);
  if (refused > 0) {
    EXPECT_EQ(static_cast<int64_t>(hedges_), hedge_tokens_);
  }
}

// Every pending ask can still make progress: attempts that it waits for can still end, and a response that can be
// accepted is accepted.
void FanOutLogicOracle::CheckUnderWay(const FanOutLogic& logic) const {
  for (const Attempt& attempt : attempts_) {
    EXPECT_GE(attempt.brought, attempt.kept + attempt.dropped + attempt.unsettled);
    if (!attempt.Live()) {
      EXPECT_EQ(attempt.kept, 0u) << "not wanted, and not dropped";
    }
    if (logic.decided() && !attempt.ended.has_value()) {
      EXPECT_TRUE(attempt.cancelled) << "decided, and not cancelled";
    }
  }
  if (logic.decided()) return;
  const bool quorum_is_full = !options_.server_streaming && options_.success_quorum.has_value() &&
                              Responded() + Accepting() >= *options_.success_quorum;
  for (size_t ask = 0; ask < workers_.size(); ++ask) {
    if (Responded(ask) || Failed(logic, ask)) continue;
    bool alive = false;
    bool under_verdict = false;
    bool waits = false;
    for (size_t i : Of(ask)) {
      const Attempt& attempt = attempts_[i];
      alive = alive || attempt.Live() || attempt.unsettled > 0;
      under_verdict = under_verdict || attempt.unsettled > 0;
      waits = waits || attempt.HasSomethingToAccept(options_.server_streaming);
    }
    EXPECT_TRUE(alive) << "ask " << ask << " is neither under way nor settled";
    if (waits && !under_verdict) {
      EXPECT_TRUE(quorum_is_full) << "ask " << ask << " has a response that is not let in";
    }
  }
}

void FanOutLogicOracle::CheckDecided(const FanOutLogic& logic) const {
  const size_t failed = logic.result().failures.size();
  const size_t quorum = options_.success_quorum.value_or(workers_.size() + 1);
  const bool too_many = failed > options_.fail_limit || workers_.size() - failed < options_.success_quorum.value_or(0);
  const bool complete = Responded() + failed == workers_.size();
  EXPECT_EQ(logic.decided(), cancelled_ || too_many || complete || Responded() >= quorum);
  EXPECT_EQ(logic.result().answered, Responded());
  if (!options_.server_streaming) {
    EXPECT_LE(Responded() + Accepting(), quorum) << "more are accepted than the quorum";
  }
}

void FanOutLogicOracle::CheckResult(const FanOutLogic& logic) const {
  const FanOutLogic::Result& result = logic.result();
  EXPECT_EQ(result.asked, workers_.size());
  EXPECT_EQ(result.asked, result.answered + result.failures.size() + result.cancelled);
  EXPECT_EQ(result.answered, Responded());
  EXPECT_EQ(result.retries, retries_);
  EXPECT_EQ(result.hedges, hedges_);
  EXPECT_LE(static_cast<int64_t>(retries_), retry_tokens_);
  EXPECT_LE(static_cast<int64_t>(hedges_), hedge_tokens_);
  const bool enough = options_.success_quorum.has_value() && result.answered >= *options_.success_quorum;
  if (result.status.ok()) {
    EXPECT_LE(result.failures.size(), options_.fail_limit);
    EXPECT_TRUE(enough || (!options_.success_quorum.has_value() && result.cancelled == 0));
    EXPECT_FALSE(result.decisive.has_value());
  } else {
    EXPECT_EQ(result.decisive.has_value(), !cancelled_);
    if (result.decisive.has_value()) {
      EXPECT_EQ(result.decisive->status, result.status);
    }
  }
  std::vector<bool> failed(workers_.size());
  for (const FanOutLogic::Failure& failure : result.failures) {
    EXPECT_FALSE(failed[failure.ask]) << "twice";
    EXPECT_FALSE(Responded(failure.ask));
    EXPECT_FALSE(failure.status.ok());
    EXPECT_TRUE(absl::c_linear_search(workers_[failure.ask], failure.worker));
    failed[failure.ask] = true;
  }
  size_t won = 0;
  for (size_t i = 0; i < attempts_.size(); ++i) {
    const Attempt& attempt = attempts_[i];
    EXPECT_EQ(attempt.kept, 0u) << "a message that is neither accepted nor dropped";
    ASSERT_TRUE(logic.attempt(i).outcome.has_value());
    const AttemptOutcome outcome = *logic.attempt(i).outcome;
    EXPECT_EQ(outcome == AttemptOutcome::kResponded, Responded(attempt.ask) && attempt.Responded());
    if (outcome == AttemptOutcome::kRefused) {
      EXPECT_TRUE(attempt.refused);
    }
    if (outcome == AttemptOutcome::kFailed) {
      EXPECT_TRUE(attempt.cancelled || !attempt.ended->ok());
      EXPECT_FALSE(attempt.expired);
    }
    if (outcome == AttemptOutcome::kResponded && logic.attempt(i).hedge) ++won;
  }
  EXPECT_EQ(result.hedges_won, won);
}

// A failed attempt is replaced at once if the options allow it. An open rival neither delays nor prevents that, unless
// it is ready; but while one is open, a worker that was asked is not asked again.
bool FanOutLogicOracle::MustRetry(const Event& event, const Attempt& failed) const {
  const std::vector<size_t> all = Of(failed.ask);
  const bool rival = absl::c_any_of(all, [&](size_t i) { return attempts_[i].Live(); });
  size_t most = options_.max_attempts > 0 ? options_.max_attempts : workers_[failed.ask].size();
  if (rival) most = std::min(most, workers_[failed.ask].size());
  const bool in_list = event.kind != EventKind::kEnded || absl::c_linear_search(options_.retry_on, event.status.code());
  const bool final = !options_.replaceable && failed.accepted > 0;
  return in_list && !final && !HasReady(failed.ask) && all.size() < most && event.now < options_.deadline &&
         static_cast<int64_t>(retries_) < retry_tokens_;
}

// While the verdict on its first message is unknown, a failed attempt may still decide its ask.
bool FanOutLogicOracle::UnderVerdict(const Attempt& attempt) const {
  return !options_.replaceable && !attempt.refused && attempt.unsettled > 0;
}

bool FanOutLogicOracle::HasReady(size_t ask) const {
  return absl::c_any_of(attempts_, [&](const Attempt& attempt) {
    return attempt.ask == ask && attempt.ready && (attempt.Live() || UnderVerdict(attempt));
  });
}

std::vector<size_t> FanOutLogicOracle::Of(size_t ask) const {
  std::vector<size_t> attempts;
  for (size_t i = 0; i < attempts_.size(); ++i) {
    if (attempts_[i].ask == ask) attempts.push_back(i);
  }
  return attempts;
}

bool FanOutLogicOracle::Responded(size_t ask) const {
  return absl::c_any_of(attempts_, [&](const Attempt& attempt) { return attempt.ask == ask && attempt.Responded(); });
}

bool FanOutLogicOracle::Failed(const FanOutLogic& logic, size_t ask) const {
  return absl::c_any_of(logic.result().failures,
                        [&](const FanOutLogic::Failure& failure) { return failure.ask == ask; });
}

size_t FanOutLogicOracle::Responded() const {
  size_t answered = 0;
  for (size_t ask = 0; ask < workers_.size(); ++ask) answered += Responded(ask) ? 1 : 0;
  return answered;
}

size_t FanOutLogicOracle::Accepting() const {
  size_t accepting = 0;
  for (size_t ask = 0; ask < workers_.size(); ++ask) {
    const std::vector<size_t> all = Of(ask);
    const bool unsettled = absl::c_any_of(all, [&](size_t i) { return attempts_[i].unsettled > 0; });
    accepting += unsettled && !Responded(ask) ? 1 : 0;
  }
  return accepting;
}

}  // namespace sluice::testing
