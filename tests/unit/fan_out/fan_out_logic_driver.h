#pragma once

#include <chrono>
#include <cstddef>
#include <ostream>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lib/fan_out/fan_out_logic.h"

namespace sluice {

inline void PrintTo(const FanOutAction& action, std::ostream* out) {
  constexpr const char* kNames[] = {"Send", "Accept", "Drop", "Cancel", "End"};
  *out << kNames[static_cast<int>(action.kind)] << "(" << action.attempt << ", " << action.messages << ")";
}

inline const absl::Status kBad = absl::DataLossError("bad");
inline const absl::Status kDown = absl::UnavailableError("down");
inline const absl::Status kInternal = absl::InternalError("as the test wants");

namespace testing {

// The actions that tests expect.
inline FanOutAction Send(size_t attempt) {
  return {FanOutAction::Kind::kSend, attempt};
}
inline FanOutAction Accept(size_t attempt, size_t messages = 1) {
  return {FanOutAction::Kind::kAccept, attempt, messages};
}
inline FanOutAction Drop(size_t attempt, size_t messages = 1) {
  return {FanOutAction::Kind::kDrop, attempt, messages};
}
inline FanOutAction Cancel(size_t attempt) {
  return {FanOutAction::Kind::kCancel, attempt};
}
inline FanOutAction End() {
  return {FanOutAction::Kind::kEnd};
}

// Feeds one FanOutLogic with events at a time that the test sets. Each event returns its own actions.
class FanOutLogicDriver {
 public:
  using Actions = FanOutActions;
  using Workers = std::vector<std::vector<size_t>>;

  explicit FanOutLogicDriver(FanOutLogic::Options options, Workers workers)
      : logic(std::move(options), std::move(workers)) {}

  // Returns a driver whose first attempts are sent: attempt i is the first attempt of ask i.
  static FanOutLogicDriver Sent(FanOutLogic::Options options, Workers workers) {
    FanOutLogicDriver driver(std::move(options), std::move(workers));
    driver.Start();
    for (size_t attempt = 0; attempt < driver.logic.attempts(); ++attempt) driver.OnSent(attempt);
    return driver;
  }

  Actions Start() {
    return Do([&](Actions& actions) { logic.Start(now, actions); });
  }
  Actions OnSent(size_t attempt) {
    return Do([&](Actions& actions) { logic.OnSent(now, attempt, actions); });
  }
  Actions OnReady(size_t attempt) {
    return Do([&](Actions& actions) { logic.OnReady(now, attempt, actions); });
  }
  void OnHeld(size_t attempt, HeldFor held_for = HeldFor::kGrant) { logic.OnHeld(now, attempt, held_for); }
  void OnGranted(size_t attempt) { OnHeld(attempt, HeldFor::kNothing); }
  Actions OnMessage(size_t attempt) {
    return Do([&](Actions& actions) { logic.OnMessage(now, attempt, actions); });
  }
  Actions OnAccepted(size_t attempt, const absl::Status& verdict = absl::OkStatus()) {
    return Do([&](Actions& actions) { logic.OnAccepted(now, attempt, verdict, actions); });
  }
  Actions OnEnded(size_t attempt, const absl::Status& status = absl::OkStatus()) {
    return Do([&](Actions& actions) { logic.OnEnded(now, attempt, status, actions); });
  }
  Actions Cancel(const absl::Status& why = absl::CancelledError("by the test")) {
    return Do([&](Actions& actions) { logic.Cancel(now, why, actions); });
  }
  Actions OnTimer() {
    return Do([&](Actions& actions) { logic.OnTimer(now, actions); });
  }
  Actions OnTimerAfter(std::chrono::milliseconds time) {
    now += time;
    return OnTimer();
  }

  // A message and the end. Returns the actions of the end.
  Actions Responds(size_t attempt) {
    OnMessage(attempt);
    return OnEnded(attempt);
  }

  const FanOutLogic::Result& result() const { return logic.result(); }
  auto outcome(size_t attempt) const { return logic.attempt(attempt).outcome; }

  TimePoint now = TimePoint() + std::chrono::hours(1);
  FanOutLogic logic;

 private:
  template <class Event>
  static Actions Do(const Event& event) {
    Actions actions;
    event(actions);
    return actions;
  }
};

}  // namespace testing
}  // namespace sluice
