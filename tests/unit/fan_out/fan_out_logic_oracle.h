#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "lib/fan_out/fan_out_logic.h"

namespace sluice::testing {

// Observes the events and the actions of one FanOutLogic, keeps its own ledger of attempts and messages, and expects
// the rules of docs/internals/fan-out.md. It scans everything after each event, which the logic must not do. There is
// one for each logic. Not thread-safe.
class FanOutLogicOracle {
 public:
  enum class EventKind { kStart, kSent, kReady, kHeld, kGranted, kMessage, kAccepted, kEnded, kCancel, kTimer };
  struct Event {
    EventKind kind;
    TimePoint now;
    size_t attempt = 0;
    absl::Status status;  // the verdict, the end, or the reason of a cancellation
  };
  struct Attempt {
    size_t ask = 0;
    std::optional<TimePoint> sent;
    bool ready = false;
    std::optional<TimePoint> held_since;
    std::chrono::nanoseconds held{0};  // before held_since
    std::optional<absl::Status> ended;
    bool cancelled = false;
    bool refused = false;
    std::optional<AttemptOutcome> outcome;  // as the logic reports it; the ledger must agree
    size_t brought = 0;
    size_t kept = 0;
    size_t unsettled = 0;
    size_t accepted = 0;  // with a verdict of OK, before any refusal
    size_t dropped = 0;
    // Returns true if the attempt may still answer its ask, according to the ledger.
    bool Live() const {
      return !cancelled && !refused && (!ended.has_value() || ended->ok()) && outcome != AttemptOutcome::kNotNeeded;
    }
    bool expired = false;  // cancelled at the deadline, and the link is to blame
    bool Whole() const { return Live() && ended.has_value(); }
    // An attempt without messages has responded when the logic accepts it, and only the logic can report that.
    bool Responded() const {
      return Whole() && accepted == brought && (brought > 0 || outcome == AttemptOutcome::kResponded);
    }
    bool HasSomethingToAccept(bool streaming) const {
      return streaming ? Live() && (kept > 0 || (brought == 0 && ended.has_value())) : Whole();
    }
  };

  FanOutLogicOracle(FanOutLogic::Options options, std::vector<std::vector<size_t>> workers_by_ask, int64_t retry_tokens,
                    int64_t hedge_tokens)
      : options_(std::move(options)),
        workers_(std::move(workers_by_ask)),
        retry_tokens_(retry_tokens),
        hedge_tokens_(hedge_tokens) {}

  // Checks the actions of an event that the logic has handled.
  void Check(const FanOutLogic& logic, const Event& event, const FanOutActions& actions);
  void CheckResult(const FanOutLogic& logic) const;

  const std::vector<Attempt>& attempts() const { return attempts_; }
  bool ended() const { return ended_; }

 private:
  void Take(const Event& event);
  void CheckAction(const FanOutLogic& logic, const Event& event, const FanOutAction& action);
  void CheckSend(const FanOutLogic& logic, const Event& event, const sluice::Attempt& made);
  void CheckLate(const FanOutLogic& logic, const Event& event, Attempt& attempt) const;
  void CheckAccept(const FanOutAction& action);
  void CheckRetry(const FanOutLogic& logic, const Event& event);
  void CheckHedges(const FanOutLogic& logic, const Event& event, const FanOutActions& actions);
  void CheckUnderWay(const FanOutLogic& logic) const;
  void CheckDecided(const FanOutLogic& logic) const;

  bool MustRetry(const Event& event, const Attempt& failed) const;
  bool UnderVerdict(const Attempt& attempt) const;
  bool HasReady(size_t ask) const;

  std::vector<size_t> Of(size_t ask) const;  // the attempts of the ask
  bool Responded(size_t ask) const;
  bool Failed(const FanOutLogic& logic, size_t ask) const;
  size_t Responded() const;
  size_t Accepting() const;  // asks that have messages under kAccept and have not responded

  const FanOutLogic::Options options_;
  const std::vector<std::vector<size_t>> workers_;
  const int64_t retry_tokens_;
  const int64_t hedge_tokens_;
  std::vector<Attempt> attempts_;
  std::optional<size_t> must_retry_;  // an ask whose attempt has failed in this event
  bool started_ = false;
  bool cancelled_ = false;
  bool decided_before_ = false;  // before this event
  size_t failures_before_ = 0;
  size_t hedges_refused_before_ = 0;
  std::vector<size_t> sent_;  // in this order, which is also the order of their hedges
  size_t next_sent_ = 0;
  bool ended_ = false;
  size_t retries_ = 0;
  size_t hedges_ = 0;
};

}  // namespace sluice::testing
