#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "sluice/link_schedule.h"

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/fan_out/attempt_budget.h"

namespace sluice {

// The decisions of one fan-out: who is asked, who is asked next when one fails or is late, whose answer counts, and
// when it is over. Used by fan-outs, block reads and manifests alike. A state machine: events with a time in, actions
// out, as docs/fan_out.md explains. One for each fan-out. Not thread-safe.
//
// An ask is one request with the workers that can answer it; an attempt is that request sent to one of them. The first
// attempt of an ask that has a message accepted claims the ask, and its rivals are cancelled.
class FanOutLogic {
 public:
  struct Options {
    TimePoint deadline = TimePoint::max();
    size_t fail_limit = 0;                 // maximum number of asks that may fail; one more fails the fan-out
    std::optional<size_t> success_quorum;  // finish after this many answers; none: wait for every ask. At most the
                                           // number of asks
    // An attempt may bring any number of messages, and they are accepted as they come. Else its message is accepted
    // once the attempt has ended OK, and never more answers are accepted than the quorum.
    bool server_streaming = false;
    absl::Duration attempt_timeout = absl::InfiniteDuration();  // of one attempt, from OnSent to OnEnded
    std::optional<absl::Duration> hedge_after;                  // from OnSent; none: no hedges
    size_t max_attempts = 0;  // of one ask, hedges included; 0: one for each of its workers. Retries beyond the number
                              // of workers begin anew with the first one
    std::vector<absl::StatusCode> retry_on = {absl::StatusCode::kUnavailable};
    // Messages may be delivered again by another attempt. Else an ask has failed when its attempt fails after a message
    // of it was accepted.
    bool replaceable = false;
    // The caller earns their tokens before Start. They outlive the logic.
    AttemptBudget* retries = nullptr;  // null: not bounded
    AttemptBudget* hedges = nullptr;   // null: not bounded
  };
  struct Action {
    enum class Kind {
      kSend,    // make `attempt`: the request of its ask to its worker. OnEnded follows, and before it OnSent where it
                // is sent. Attempts are numbered from 0 in the order of these actions
      kAccept,  // give the first `messages` of those that the attempt has brought and that were neither accepted nor
                // dropped to whoever asked; OnAccepted with the verdict follows for each
      kDrop,    // the same messages are not wanted; forget them
      kCancel,  // cancel the attempt; OnEnded follows all the same
      kEnd,     // the fan-out is over: result(). Comes once, after the last OnEnded and OnAccepted
    };
    Kind kind;
    size_t attempt = 0;
    size_t messages = 0;
    friend bool operator==(const Action&, const Action&) = default;
  };
  using Actions = std::vector<Action>;
  // kFailed: by its status, by attempt_timeout, or at the deadline where it had been sent. kRefused: a message of it
  // was not accepted. kNotNeeded: a rival was faster, the fan-out was decided, or it was not sent by the deadline.
  enum class AttemptOutcome { kAnswered, kFailed, kRefused, kNotNeeded };
  struct Attempt {
    size_t ask = 0;
    size_t worker = 0;
    bool hedge = false;
    bool retry = false;
    // After OnEnded and the last OnAccepted.
    std::optional<AttemptOutcome> outcome;
  };
  struct Failure {
    size_t ask = 0;
    size_t worker = 0;  // that failed last
    absl::Status status;
  };
  struct Result {
    // OK; what was given to Cancel; or the status of the failure that was one too many. DeadlineExceeded is one of the
    // latter.
    absl::Status status;
    std::optional<Failure> decisive;  // that failure
    size_t asked = 0;                 // = answered + failures.size() + cancelled
    size_t answered = 0;
    size_t cancelled = 0;
    std::vector<Failure> failures;
    size_t retries = 0;
    size_t hedges = 0;
    size_t hedges_won = 0;
    size_t retries_refused = 0;  // for want of tokens
    size_t hedges_refused = 0;
  };

  // `workers_by_ask`: for each ask the workers that can answer it, in the order in which they are tried; none is empty.
  FanOutLogic(Options options, std::vector<std::vector<size_t>> workers_by_ask);

  // All events append to `actions`. Times never decrease.

  // First of all, once. Nothing is sent where the deadline has passed.
  void Start(TimePoint now, Actions& actions);

  void OnSent(TimePoint now, size_t attempt, Actions& actions);
  // The length prefix of its first message is here: its answer only waits to be let in, so no hedge can help any more.
  void OnReady(TimePoint now, size_t attempt, Actions& actions);
  // A whole message. Not after OnEnded.
  void OnMessage(TimePoint now, size_t attempt, Actions& actions);
  // The verdict on the oldest message under kAccept: OK, or why it is worth nothing. After a verdict that is not OK the
  // attempt's later messages under kAccept must not reach whoever asked; their verdicts still come, and do not matter.
  // The same holds for all messages once decided(): those that have not reached anyone may get Cancelled for a verdict.
  void OnAccepted(TimePoint now, size_t attempt, const absl::Status& verdict, Actions& actions);
  // The attempt is over, once for each. OK: all its messages have come before. Also for what never left.
  void OnEnded(TimePoint now, size_t attempt, const absl::Status& status, Actions& actions);

  // Ends it with `why`, which is not OK, unless it is decided already. Before Start: then Start sends nothing.
  void Cancel(TimePoint now, const absl::Status& why, Actions& actions);

  void OnTimer(TimePoint now, Actions& actions);
  TimePoint NextTimer() const;  // TimePoint::max(): none

  const Attempt& attempt(size_t attempt) const { return attempts_[attempt].made; }
  size_t attempts() const { return attempts_.size(); }
  bool decided() const { return decided_; }         // nothing that is under way is needed any more
  // Verdicts alone may end it: no other answer has to come first.
  bool AwaitsVerdicts() const;
  const Result& result() const { return result_; }  // after kEnd

 private:
  using Status = absl::Status;
  struct AttemptState {
    Attempt made;
    bool sent = false;
    bool ready = false;
    bool ended = false;
    bool cancelled = false;  // kCancel was an action
    bool live = true;        // may still answer its ask; else `concluded` says why not
    AttemptOutcome concluded = AttemptOutcome::kNotNeeded;
    size_t kept = 0;       // messages neither accepted nor dropped
    size_t unsettled = 0;  // messages under kAccept
    // Why it has failed, while what that means depends on the verdict on its first message.
    Status failure;

    bool MayTimeOut() const { return live && !ended && failure.ok(); }
  };
  enum class AskOutcome { kPending, kAnswered, kFailed };
  struct AskState {
    std::vector<size_t> workers;
    size_t made = 0;  // attempts
    AskOutcome outcome = AskOutcome::kPending;
    absl::InlinedVector<size_t, 2> live;  // attempts, oldest first
    size_t ready = 0;                     // of those
    std::optional<size_t> accepting;      // the attempt with messages under kAccept, or that has claimed the ask
    bool claimed = false;
    bool waits_for_quorum = false;  // stands in waiting_
  };
  struct Due {
    TimePoint at;
    size_t attempt = 0;
  };
  enum class Reason { kFirst, kRetry, kHedge };

  AskState& AskOf(size_t attempt) { return asks_[attempts_[attempt].made.ask]; }
  void MarkReady(size_t attempt);
  bool Whole(size_t attempt) const;  // all of its answer is here
  bool VerdictDecides(size_t attempt);

  void Send(size_t ask, Reason reason, Actions& actions);
  bool TakeRetry(TimePoint now, size_t ask);
  bool HasUnaskedWorker(const AskState& ask) const;
  void Hedge(size_t attempt, Actions& actions);

  // The way of an answer.
  void LetIn(size_t ask, Actions& actions);
  void LetInWaiting(Actions& actions);
  bool QuorumIsTaken() const;
  void Accept(size_t attempt, Actions& actions);
  void Claim(size_t attempt, Actions& actions);
  void Answer(size_t attempt, Actions& actions);
  void Release(size_t attempt, Actions& actions);

  // The way of a failure.
  void Fail(TimePoint now, size_t attempt, const Status& status, bool retry, Actions& actions);
  void Refuse(TimePoint now, size_t attempt, const Status& verdict, Actions& actions);
  void Replace(TimePoint now, size_t attempt, const Status& status, bool retry, Actions& actions);
  void FailAsk(size_t ask, size_t worker, const Status& status);
  void Expire(Actions& actions);
  void ExpireAsk(size_t ask, Actions& actions);

  // The end of attempts, asks, and all.
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
  size_t open_ = 0;            // attempts without OnEnded
  size_t unsettled_ = 0;       // messages under kAccept
  size_t asks_accepting_ = 0;  // pending ones
  bool started_ = false;
  bool expired_ = false;  // the deadline has passed
  bool decided_ = false;
  bool ended_ = false;
  // Queues that only grow, by at most one entry for each attempt (or refusal), with the index of their first entry: a
  // std::deque would allocate and free as they move on. The times are in order, since all wait equally long.
  std::vector<Due> hedge_times_;
  size_t next_hedge_ = 0;
  std::vector<Due> timeouts_;
  size_t next_timeout_ = 0;
  std::vector<size_t> waiting_;  // asks with a whole answer that the quorum keeps out
  size_t next_waiting_ = 0;
  Result result_;
};

}  // namespace sluice
