#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "lib/fan_out/fan_out_action.h"
#include "lib/scheduling/attempt_time.h"
#include "lib/scheduling/breaches.h"

namespace sluice {

// kFailed: the attempt failed by its status, by attempt_timeout, or at the deadline. kExpired: the deadline passed, and
// the link is to blame (AttemptTime::LinkIsLate). kRefused: one of its messages was refused. kNotNeeded: a rival was
// faster, or the fan-out was decided.
enum class AttemptOutcome { kResponded, kFailed, kExpired, kRefused, kNotNeeded };

// The request of an ask, sent to one of its workers.
struct Attempt {
  size_t ask = 0;
  size_t worker = 0;
  bool hedge = false;
  bool retry = false;
  // Set after its end and the verdict on its last message.
  std::optional<AttemptOutcome> outcome;
  std::chrono::nanoseconds of_link{0};  // AttemptTime::OfLink at its end
};

// The attempts of one fan-out: how far each has come, and the messages that it keeps. It makes the actions that concern
// one attempt. FanOutLogic decides which attempts are made, and which count. There is one for each fan-out. Not
// thread-safe.
//
// An attempt is live while its response may count. A message is kept from its arrival until it is handed over or
// dropped. It is unsettled from then until its verdict.
class Attempts {
 public:
  struct State {
    Attempt made;
    AttemptTime time;
    bool ready = false;
    bool ended = false;
    bool cancelled = false;  // kCancel was an action
    bool live = true;        // if false, `concluded` is the reason
    AttemptOutcome concluded = AttemptOutcome::kNotNeeded;
    size_t kept = 0;
    size_t unsettled = 0;
    // Why the attempt has failed, while the consequence depends on the verdict on its first message. If that verdict is
    // OK, the attempt ends with `concluded`.
    absl::Status failure;

    bool Counts() const { return live && failure.ok(); }  // nothing has gone wrong yet
    bool Whole() const { return Counts() && ended; }      // the whole response has arrived
    bool MayTimeOut() const { return Counts() && !ended; }
    // Returns DeadlineExceeded, with the reason why the response has not arrived.
    absl::Status WhyLate(TimePoint now) const;
  };

  explicit Attempts(size_t asks) { states_.reserve(asks); }

  // The breached invariants of the attempts, and of the FanOutLogic that has them.
  Breaches& breaches() { return breaches_; }
  size_t size() const { return states_.size(); }
  const State& operator[](size_t attempt) const { return states_[attempt]; }
  bool settled() const { return open_ == 0 && unsettled_ == 0; }  // every attempt has its outcome, or gets it at once

  // Returns the number of the new attempt.
  size_t Send(const Attempt& made, FanOutActions& actions);

  // The events of FanOutLogic. OnSent, OnVerdict and OnEnded return false if the event breaks an invariant. It is then
  // ignored: a second end, for example, would let the fan-out end while another attempt is open.
  bool OnSent(TimePoint now, size_t attempt);
  void OnReady(size_t attempt) { states_[attempt].ready = true; }
  void OnHeld(TimePoint now, size_t attempt, HeldFor held_for) { states_[attempt].time.OnHeld(now, held_for); }
  bool OnMessage(size_t attempt, FanOutActions& actions);  // returns false if the message is dropped
  bool OnVerdict(size_t attempt);
  bool OnEnded(TimePoint now, size_t attempt, const absl::Status& status);

  // Hands the kept messages over.
  void HandOver(size_t attempt, FanOutActions& actions);
  // Cancels a live attempt that has failed, but whose first message may already have been accepted.
  void FailUnlessRefused(size_t attempt, absl::Status failure, AttemptOutcome outcome, FanOutActions& actions);
  // Ends an attempt that no longer counts, or whose response has counted.
  void Conclude(size_t attempt, AttemptOutcome outcome, FanOutActions& actions);

 private:
  void Cancel(size_t attempt, FanOutActions& actions);
  static void Publish(State& state);

  Breaches breaches_;
  std::vector<State> states_;
  size_t open_ = 0;       // attempts that have not ended
  size_t unsettled_ = 0;  // messages, of all attempts
};

}  // namespace sluice
