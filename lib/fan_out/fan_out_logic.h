#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "sluice/link_schedule.h"

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace sluice {

// Tokens for requests beyond the first ones, so that trouble does not multiply the load: each ask earns a part of one,
// and each retry (or hedge) spends a whole one. One for the retries and one for the hedges of a FanOut.
class AttemptBudget {
 public:
  void Earn(double tokens);  // at most kMost are saved up
  bool Spend();              // false: there is none

 private:
  static constexpr double kFirst = 8;
  static constexpr double kMost = 256;
  double tokens_ = kFirst;
};

// The decisions of one fan-out: who is asked, who is asked next when one fails or is late, whose answer counts, and
// when it is over. Used by fan-outs, block reads and manifests alike. A state machine: events with a time in, actions
// out. One a fan-out. Not thread-safe.
//
// An ask is one request with the workers that can answer it; an attempt is that request sent to one of them. The first
// attempt of an ask that brings a message claims the ask; its rivals are cancelled once that message is accepted.
class FanOutLogic {
 public:
  struct Options {
    TimePoint deadline = TimePoint::max();
    size_t fail_limit = 0;                 // asks that may fail; with one more the fan-out fails
    std::optional<size_t> success_quorum;  // asks whose answers are enough; none: all are waited for
    absl::Duration attempt_timeout = absl::InfiniteDuration();  // of one attempt, from OnSent
    std::optional<absl::Duration> hedge_after;                  // from OnSent; none: no hedges
    size_t max_attempts = 0;  // of one ask, hedges included; 0: one for each of its workers. More of them begin anew
                              // with the first worker
    std::vector<absl::StatusCode> retry_on = {absl::StatusCode::kUnavailable};
    // Messages may be delivered once more by another attempt. Else an ask whose attempt fails after its first message
    // was accepted has failed.
    bool replaceable = false;
    AttemptBudget* retries = nullptr;  // null: not bounded
    AttemptBudget* hedges = nullptr;   // null: not bounded
  };
  struct Action {
    enum class Kind {
      kSend,    // make `attempt`: the request of `ask` to `worker`. OnEnded follows, and before it OnSent, where it is
                // sent
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
  enum class AttemptOutcome { kAnswered, kFailed, kRefused, kNotNeeded };  // kRefused: its message was not accepted
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
    // OK; DeadlineExceeded; Cancelled, as given to Cancel; or the status of the worker failure that was one too many.
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

  // `workers_by_ask`: of each ask the workers that can answer it, in the order in which they are tried; none is empty.
  FanOutLogic(Options options, std::vector<std::vector<size_t>> workers_by_ask);

  // First of all, once.
  void Start(TimePoint now, std::vector<Action>& actions);

  void OnSent(TimePoint now, size_t attempt, std::vector<Action>& actions);
  // Its answer only waits to be let in: no hedge can help any more.
  void OnReady(TimePoint now, size_t attempt, std::vector<Action>& actions);
  void OnMessage(TimePoint now, size_t attempt, std::vector<Action>& actions);
  // The verdict on the oldest message under kAccept: OK, or why it is worth nothing.
  void OnAccepted(TimePoint now, size_t attempt, const absl::Status& verdict, std::vector<Action>& actions);
  // The attempt is over: OK: all its messages have come before. `unsent`: it never left, since its worker could not be
  // reached.
  void OnEnded(TimePoint now, size_t attempt, const absl::Status& status, std::vector<Action>& actions);

  // Ends it with `why`, unless it is decided already.
  void Cancel(TimePoint now, const absl::Status& why, std::vector<Action>& actions);

  void OnTimer(TimePoint now, std::vector<Action>& actions);
  TimePoint NextTimer() const;  // TimePoint::max(): none

  const Attempt& attempt(size_t attempt) const;
  size_t attempts() const;
  bool decided() const;          // nothing that is under way is needed any more
  const Result& result() const;  // after kEnd
};

}  // namespace sluice
