#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/fan_out/attempt_budget.h"
#include "lib/scheduling/attempt_time.h"
#include "lib/scheduling/link_schedule.h"

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
  struct Action {
    enum class Kind {
      kSend,    // Send the request of the attempt's ask to its worker. OnSent follows if it is sent, and then OnEnded.
                // Attempts are numbered from 0 in the order of these actions.
      kAccept,  // Hand over the first `messages` messages of the attempt that were neither accepted nor dropped.
                // OnAccepted with the verdict follows for each.
      kDrop,    // Discard the first `messages` of them.
      kCancel,  // Cancel the attempt; OnEnded still follows.
      kEnd,     // The fan-out is over, and result() is valid. Comes once, after the last OnEnded and OnAccepted.
    };
    Kind kind;
    size_t attempt = 0;
    size_t messages = 0;
    friend bool operator==(const Action&, const Action&) = default;
  };
  using Actions = std::vector<Action>;
  // kFailed: the attempt failed by its status, by attempt_timeout, or at the deadline. kExpired: the deadline passed,
  // and the link is to blame (AttemptTime::LinkIsLate). kRefused: one of its messages was refused. kNotNeeded: a rival
  // was faster, or the fan-out was decided.
  enum class AttemptOutcome { kAnswered, kFailed, kExpired, kRefused, kNotNeeded };
  struct Attempt {
    size_t ask = 0;
    size_t worker = 0;
    bool hedge = false;
    bool retry = false;
    // Set after OnEnded and the last OnAccepted.
    std::optional<AttemptOutcome> outcome;
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
  void Start(TimePoint now, Actions& actions);

  void OnSent(TimePoint now, size_t attempt, Actions& actions);
  // The length prefix of the first message has arrived: the response waits only for a grant, so a hedge cannot help.
  void OnReady(TimePoint now, size_t attempt, Actions& actions);
  // See ScheduledStream::OnHeld: the worker cannot proceed while the response is held. Must not follow OnEnded.
  void OnHeld(TimePoint now, size_t attempt, HeldFor held_for);
  // A complete message has arrived. Must not follow OnEnded.
  void OnMessage(TimePoint now, size_t attempt, Actions& actions);
  // The verdict on the oldest message under kAccept: OK, or why it is refused. After a verdict other than OK, the
  // attempt's later messages under kAccept must not reach the application. Their verdicts still follow, and are
  // ignored. The same holds for all messages after decided() returns true: the verdict on messages that have not
  // reached the application may be Cancelled.
  void OnAccepted(TimePoint now, size_t attempt, const absl::Status& verdict, Actions& actions);
  // The attempt is over. Called once for each attempt, including attempts that were never sent. If OK, all its messages
  // have arrived.
  void OnEnded(TimePoint now, size_t attempt, const absl::Status& status, Actions& actions);

  // Ends the fan-out with `why`, which must not be OK, unless the fan-out is already decided. If Cancel comes before
  // Start, Start sends nothing.
  void Cancel(TimePoint now, const absl::Status& why, Actions& actions);

  void OnTimer(TimePoint now, Actions& actions);
  TimePoint NextTimer() const;  // TimePoint::max() if there is none

  const Attempt& attempt(size_t attempt) const { return attempts_[attempt].made; }
  size_t attempts() const { return attempts_.size(); }
  bool decided() const { return decided_; }  // the result is fixed; attempts that are still open do not change it
  // Returns true if verdicts alone may end the fan-out, without a further response.
  bool AwaitsVerdicts() const;
  const Result& result() const { return result_; }  // after kEnd

 private:
  using Status = absl::Status;
  struct AttemptState {
    Attempt made;
    AttemptTime time;
    bool ready = false;
    bool ended = false;
    bool cancelled = false;  // kCancel was an action
    bool live = true;        // may still answer its ask; if false, `concluded` is the reason
    AttemptOutcome concluded = AttemptOutcome::kNotNeeded;
    size_t kept = 0;       // messages neither accepted nor dropped
    size_t unsettled = 0;  // messages under kAccept
    // Why the attempt has failed, while the consequence depends on the verdict on its first message. If that verdict is
    // OK, the attempt ends with `concluded`.
    Status failure;

    bool MayTimeOut() const { return live && !ended && failure.ok(); }
  };
  enum class AskOutcome { kPending, kAnswered, kFailed };
  struct AskState {
    std::vector<size_t> workers;
    size_t made = 0;  // attempts
    AskOutcome outcome = AskOutcome::kPending;
    absl::InlinedVector<size_t, 2> live;  // attempts, oldest first
    size_t ready = 0;                     // number of live attempts that are ready
    std::optional<size_t> accepting;      // the attempt that has messages under kAccept, or has claimed the ask
    bool claimed = false;
    bool waits_for_quorum = false;  // is in waiting_
  };
  struct Due {
    TimePoint at;
    size_t attempt = 0;
  };
  enum class Reason { kFirst, kRetry, kHedge };

  AskState& AskOf(size_t attempt) { return asks_[attempts_[attempt].made.ask]; }
  void MarkReady(size_t attempt);
  bool Whole(size_t attempt) const;  // the whole response has arrived
  bool VerdictDecides(size_t attempt);

  void Send(size_t ask, Reason reason, Actions& actions);
  bool TakeRetry(TimePoint now, size_t ask);
  bool HasUnaskedWorker(const AskState& ask) const;
  void Hedge(size_t attempt, Actions& actions);

  // Responses.
  void LetIn(size_t ask, Actions& actions);
  void LetInWaiting(Actions& actions);
  bool QuorumIsTaken() const;
  void Accept(size_t attempt, Actions& actions);
  void Claim(size_t attempt, Actions& actions);
  void Answer(size_t attempt, Actions& actions);
  void Release(size_t attempt, Actions& actions);

  // Failures.
  void Fail(TimePoint now, size_t attempt, const Status& status, bool retry, Actions& actions);
  void Refuse(TimePoint now, size_t attempt, const Status& verdict, Actions& actions);
  void Replace(TimePoint now, size_t attempt, const Status& status, bool retry, Actions& actions);
  void FailAsk(size_t attempt, const Status& status);
  void FailAsk(Failure failure);
  void Expire(TimePoint now, Actions& actions);
  void ExpireAsk(TimePoint now, size_t ask, Actions& actions);
  static Status LateStatus(TimePoint now, const AttemptState& state);
  bool has_attempt_timeout() const { return options_.attempt_timeout != absl::InfiniteDuration(); }
  TimePoint TimeoutOf(TimePoint now, size_t attempt) const;  // not while the response is held

  // The end of attempts, of asks, and of the fan-out.
  void CancelAttempt(size_t attempt, Actions& actions);
  void Conclude(size_t attempt, AttemptOutcome outcome, Actions& actions);
  void Publish(size_t attempt);
  void CloseAsk(size_t ask, AskOutcome outcome);
  void DecideIfSettled(Actions& actions);
  void Decide(const Status& status, Actions& actions);
  void AfterEvent(Actions& actions);

  const Options options_;
  std::vector<AskState> asks_;
  std::vector<AttemptState> attempts_;
  size_t open_ = 0;            // attempts that have not ended
  size_t unsettled_ = 0;       // messages under kAccept
  size_t asks_accepting_ = 0;  // pending asks that have an accepting attempt
  bool started_ = false;
  bool expired_ = false;  // the deadline has passed
  bool decided_ = false;
  bool ended_ = false;
  // When attempts time out. Attempts whose response is held are not in it.
  std::set<std::pair<TimePoint, size_t>> timeouts_;
  // Queues that only grow, by at most one entry for each attempt (or refusal), with the index of their first entry. A
  // std::deque would allocate and free memory as they advance. Times are in order, because all entries wait equally
  // long.
  std::vector<Due> hedge_times_;
  size_t next_hedge_ = 0;
  std::vector<size_t> waiting_;  // asks with a whole response that wait because the quorum is taken
  size_t next_waiting_ = 0;
  Result result_;
};

}  // namespace sluice
