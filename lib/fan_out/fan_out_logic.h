#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/fan_out/attempt_budget.h"
#include "lib/fan_out/attempt_timers.h"
#include "lib/fan_out/attempts.h"
#include "lib/fan_out/fan_out_action.h"
#include "lib/fan_out/quorum.h"

namespace sluice {

// The decisions of one fan-out: which workers are asked, which worker is asked next when one fails or is late, whose
// response counts, and when the fan-out is over. Fan-outs, block reads and manifests use it. It is a state machine that
// takes events with a time and returns actions, as docs/internals/fan-out.md explains. There is one for each fan-out.
// Not thread-safe.
//
// An ask is one request with the workers that can answer it. An attempt is that request sent to one of them. The first
// attempt of an ask to have a message accepted claims the ask, and its rivals are cancelled.
class FanOutLogic {
 public:
  struct Options {
    TimePoint deadline = TimePoint::max();
    size_t fail_limit = 0;                 // maximum number of asks that may fail; one more fails the fan-out
    std::optional<size_t> success_quorum;  // finish after this many responses; at most the number of asks. Default:
                                           // wait for every ask
    // If true, an attempt may deliver any number of messages, and each is accepted when it arrives. Otherwise the
    // message of an attempt is accepted after the attempt has ended OK, and the number of accepted responses never
    // exceeds the quorum.
    bool server_streaming = false;
    // Time limit of one attempt from OnSent to OnEnded, without the time in which its response is held.
    absl::Duration attempt_timeout = absl::InfiniteDuration();
    std::optional<absl::Duration> hedge_after;  // from OnSent; default: no hedges
    size_t max_attempts = 0;  // maximum of one ask, with hedges; 0: one for each of its workers. Retries beyond the
                              // number of workers begin again with the first one
    std::vector<absl::StatusCode> retry_on = {absl::StatusCode::kUnavailable};
    // If true, a later attempt may deliver the messages of an ask again. Otherwise an ask fails if its attempt fails
    // after one of its messages was accepted.
    bool replaceable = false;
    // The caller earns tokens before Start. The budgets must outlive the logic.
    AttemptBudget* retries = nullptr;  // null: no bound
    AttemptBudget* hedges = nullptr;   // null: no bound
  };
  struct Failure {
    size_t ask = 0;
    size_t worker = 0;              // the worker that failed last
    std::optional<size_t> attempt;  // its attempt; none if the deadline had passed at the start
    absl::Status status;
  };
  struct Result {
    // OK, the status that Cancel was called with, or the status of the decisive failure. Asks that are pending at the
    // deadline fail with DeadlineExceeded.
    absl::Status status;
    std::optional<Failure> decisive;  // the failure that exceeded fail_limit, or made the quorum unreachable
    size_t asked = 0;                 // = answered + failures.size() + cancelled
    size_t answered = 0;
    size_t cancelled = 0;
    std::vector<Failure> failures;
    size_t retries = 0;
    size_t hedges = 0;
    size_t hedges_won = 0;
    size_t retries_refused = 0;  // because no token was left
    size_t hedges_refused = 0;
  };

  // `workers_by_ask` lists for each ask the workers that can answer it, in the order in which they are tried. Each list
  // has at least one worker.
  FanOutLogic(Options options, std::vector<std::vector<size_t>> workers_by_ask);

  // All events append to `actions`. Times must never decrease.

  // The first event, once. Nothing is sent if the deadline has passed.
  void Start(TimePoint now, FanOutActions& actions);

  void OnSent(TimePoint now, size_t attempt, FanOutActions& actions);
  // The length prefix of the first message has arrived: the response waits only for a grant, so a hedge cannot help.
  void OnReady(TimePoint now, size_t attempt, FanOutActions& actions);
  // See ScheduledStream::OnHeld: the worker cannot proceed while the response is held. Must not follow OnEnded.
  void OnHeld(TimePoint now, size_t attempt, HeldFor held_for);
  // A complete message has arrived. Must not follow OnEnded.
  void OnMessage(TimePoint now, size_t attempt, FanOutActions& actions);
  // The verdict on the oldest message under kAccept: OK, or why it is refused. After a verdict other than OK, the
  // attempt's later messages under kAccept must not reach the application. Their verdicts still follow, and are
  // ignored. The same holds for all messages after decided() returns true: the verdict on messages that have not
  // reached the application may be Cancelled.
  void OnAccepted(TimePoint now, size_t attempt, const absl::Status& verdict, FanOutActions& actions);
  // The attempt is over. Called once for each attempt, including attempts that were never sent. If OK, all its messages
  // have arrived.
  void OnEnded(TimePoint now, size_t attempt, const absl::Status& status, FanOutActions& actions);

  // Ends the fan-out with `why`, which must not be OK, unless the fan-out is already decided. If Cancel comes before
  // Start, Start sends nothing.
  void Cancel(TimePoint now, const absl::Status& why, FanOutActions& actions);

  void OnTimer(TimePoint now, FanOutActions& actions);
  TimePoint NextTimer() const;  // TimePoint::max() if there is none

  const Attempt& attempt(size_t attempt) const { return attempts_[attempt].made; }
  size_t attempts() const { return attempts_.size(); }
  Breaches& breaches() { return attempts_.breaches(); }
  bool decided() const { return decided_; }  // the result is fixed; attempts that are still open do not change it
  bool AwaitsVerdicts() const { return quorum_.AwaitsVerdicts(); }  // verdicts alone may end the fan-out
  const Result& result() const { return result_; }                  // after kEnd

 private:
  using Status = absl::Status;
  enum class AskOutcome { kPending, kResponded, kFailed };
  struct AskState {
    std::vector<size_t> workers;
    size_t made = 0;  // attempts
    AskOutcome outcome = AskOutcome::kPending;
    absl::InlinedVector<size_t, 2> live;  // attempts, oldest first
    std::optional<size_t> accepting;      // the attempt that has messages under kAccept, or has claimed the ask
    bool claimed = false;
    bool waits_for_quorum = false;  // it waits in quorum_

    void Close(AskOutcome as, Quorum& quorum, Breaches& breaches);
    // `max_attempts` as in Options.
    bool MayRetry(size_t max_attempts) const { return made < (max_attempts > 0 ? max_attempts : workers.size()); }
    // A rival goes only to a worker that was not asked yet: asking a slow worker twice does not make it faster.
    bool MayHedge(size_t max_attempts) const { return MayRetry(max_attempts) && made < workers.size(); }
  };
  enum class Reason { kFirst, kRetry, kHedge };

  AskState& AskOf(size_t attempt) { return asks_[attempts_[attempt].made.ask]; }

  // Requests.
  void Send(size_t ask, Reason reason, FanOutActions& actions);
  bool TakeRetry(TimePoint now, size_t ask);
  void Hedge(size_t attempt, FanOutActions& actions);

  // Responses.
  void LetIn(size_t ask, FanOutActions& actions);
  void Accept(size_t attempt, FanOutActions& actions);
  void Claim(size_t attempt, FanOutActions& actions);
  void CompleteAsk(size_t attempt, FanOutActions& actions);
  void Release(size_t attempt, FanOutActions& actions);

  // Failures.
  bool VerdictDecides(size_t attempt);
  void Fail(TimePoint now, size_t attempt, const Status& status, bool retry, FanOutActions& actions);
  void Replace(TimePoint now, size_t attempt, const Status& status, bool retry, FanOutActions& actions);
  void FailAsk(size_t ask, std::optional<size_t> attempt, const Status& status);
  void Expire(TimePoint now, FanOutActions& actions);
  void ExpireAsk(TimePoint now, size_t ask, FanOutActions& actions);

  // The end of attempts, of asks, and of the fan-out.
  void Conclude(size_t attempt, AttemptOutcome outcome, FanOutActions& actions);
  void DecideIfSettled(FanOutActions& actions);
  void Decide(const Status& status, FanOutActions& actions);
  void AfterEvent(FanOutActions& actions);

  const Options options_;
  std::vector<AskState> asks_;
  Attempts attempts_;
  AttemptTimers timers_;
  Quorum quorum_;
  bool started_ = false;
  bool expired_ = false;  // the deadline has passed
  bool decided_ = false;
  bool ended_ = false;
  Result result_;
};

}  // namespace sluice
