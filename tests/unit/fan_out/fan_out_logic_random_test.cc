#include <algorithm>
#include <chrono>
#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lib/fan_out/fan_out_logic.h"
#include "tests/random_seed.h"
#include "tests/unit/fan_out/fan_out_logic_driver.h"
#include "tests/unit/fan_out/fan_out_logic_oracle.h"

namespace sluice {
namespace {

using testing::FanOutLogicOracle;
using EventKind = FanOutLogicOracle::EventKind;
using std::chrono::milliseconds;

// One fan-out with options, workers and events from a seed: all events that a runtime may report, in any valid order.
class RandomFanOut {
 public:
  explicit RandomFanOut(uint64_t seed)
      : random_(seed),
        retry_tokens_(static_cast<int64_t>(Draw(AttemptBudget::kFirst + 1))),
        hedge_tokens_(static_cast<int64_t>(Draw(AttemptBudget::kFirst + 1))),
        verdicts_one_in_(1 + Draw(20)),
        workers_(MakeWorkers()),
        options_(MakeOptions()),
        logic_(options_, workers_),
        oracle_(options_, workers_, retry_tokens_, hedge_tokens_) {
    for (int64_t i = retry_tokens_; i < AttemptBudget::kFirst; ++i) retries_.Spend();
    for (int64_t i = hedge_tokens_; i < AttemptBudget::kFirst; ++i) hedges_.Spend();
  }

  void Run() {
    if (OneIn(40)) Do({.kind = EventKind::kCancel, .status = absl::CancelledError("before the start")});
    Do({.kind = EventKind::kStart});
    // Each attempt ends at some time, so a run of this length means that the logic does not end.
    for (int step = 0; !oracle_.ended() && step < 10'000; ++step) {
      Step();
      if (::testing::Test::HasFailure()) return;
    }
    ASSERT_TRUE(oracle_.ended());
    oracle_.CheckResult(logic_);
  }

  const FanOutLogic::Result& result() const { return logic_.result(); }
  std::string Describe() const {
    return absl::StrCat(workers_.size(), " asks, streaming ", options_.server_streaming, ", fail_limit ",
                        options_.fail_limit, ", quorum ", options_.success_quorum.value_or(0), ", replaceable ",
                        options_.replaceable, ", max_attempts ", options_.max_attempts, ", events:", events_);
  }

 private:
  size_t Draw(size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random_); }
  bool OneIn(size_t n) { return Draw(n) == 0; }

  std::vector<std::vector<size_t>> MakeWorkers() {
    std::vector<std::vector<size_t>> workers(Draw(6));
    for (auto& list : workers) {
      for (size_t i = 0, count = 1 + Draw(4); i < count; ++i) list.push_back(10 * (i + 1) + Draw(10));
    }
    return workers;
  }

  FanOutLogic::Options MakeOptions() {
    FanOutLogic::Options options{.fail_limit = Draw(workers_.size() + 1),
                                 .server_streaming = OneIn(2),
                                 .max_attempts = OneIn(2) ? 0 : 1 + Draw(6),
                                 .replaceable = OneIn(3),
                                 .retries = &retries_,
                                 .hedges = &hedges_};
    if (OneIn(2)) options.deadline = now_ + milliseconds(Draw(60));
    if (OneIn(2) && !workers_.empty()) options.success_quorum = 1 + Draw(workers_.size());
    if (OneIn(2)) options.attempt_timeout = absl::Milliseconds(1 + Draw(30));
    if (!OneIn(3)) options.hedge_after = absl::Milliseconds(Draw(15));
    if (OneIn(3)) options.retry_on.push_back(absl::StatusCode::kInternal);
    return options;
  }

  absl::Status BadStatus() {
    switch (Draw(4)) {
      case 0:
        return absl::InternalError("internal");
      case 1:
        return absl::CancelledError("cancelled");
      default:
        return absl::UnavailableError("unavailable");
    }
  }

  void Step() {
    if (OneIn(6)) now_ += milliseconds(Draw(8));
    if (OneIn(5) && logic_.NextTimer() != TimePoint::max()) now_ = std::max(now_, logic_.NextTimer());
    if (OneIn(100)) return Do({.kind = EventKind::kCancel, .status = absl::CancelledError("by the test")});
    if (OneIn(4) && (logic_.NextTimer() <= now_ || OneIn(4))) return Do({.kind = EventKind::kTimer});
    const size_t attempt = Draw(oracle_.attempts().size());
    const FanOutLogicOracle::Attempt& state = oracle_.attempts()[attempt];
    if (state.unsettled > 0 && OneIn(verdicts_one_in_)) {
      return Do({EventKind::kAccepted, now_, attempt, OneIn(4) ? BadStatus() : absl::OkStatus()});
    }
    if (state.ended.has_value()) return;
    if (!state.sent.has_value()) {
      if (OneIn(8)) return Do({EventKind::kEnded, now_, attempt, BadStatus()});
      return Do({EventKind::kSent, now_, attempt});
    }
    if (!state.ready && OneIn(3)) return Do({EventKind::kReady, now_, attempt});
    if (state.held_since.has_value()) {
      if (OneIn(3)) Do({EventKind::kGranted, now_, attempt});
      return;
    }
    if (state.ready && OneIn(3)) return Do({EventKind::kHeld, now_, attempt});
    if (OneIn(6)) return Do({EventKind::kEnded, now_, attempt, BadStatus()});
    const bool may_bring = options_.server_streaming || state.brought == 0;
    if (may_bring && OneIn(2)) return Do({EventKind::kMessage, now_, attempt});
    if (!may_bring || OneIn(options_.server_streaming ? 3 : 10)) Do({EventKind::kEnded, now_, attempt});
  }

  void Do(FanOutLogicOracle::Event event) {
    event.now = now_;
    absl::StrAppend(&events_, " ", static_cast<int>(event.kind), "(", event.attempt, ")", event.status.ok() ? "" : "!");
    FanOutActions actions;
    switch (event.kind) {
      case EventKind::kStart:
        logic_.Start(now_, actions);
        break;
      case EventKind::kSent:
        logic_.OnSent(now_, event.attempt, actions);
        break;
      case EventKind::kReady:
        logic_.OnReady(now_, event.attempt, actions);
        break;
      case EventKind::kHeld:
        logic_.OnHeld(now_, event.attempt, event.attempt % 2 == 0 ? HeldFor::kGrant : HeldFor::kRoom);
        break;
      case EventKind::kGranted:
        logic_.OnHeld(now_, event.attempt, HeldFor::kNothing);
        break;
      case EventKind::kMessage:
        logic_.OnMessage(now_, event.attempt, actions);
        break;
      case EventKind::kAccepted:
        logic_.OnAccepted(now_, event.attempt, event.status, actions);
        break;
      case EventKind::kEnded:
        logic_.OnEnded(now_, event.attempt, event.status, actions);
        break;
      case EventKind::kCancel:
        logic_.Cancel(now_, event.status, actions);
        break;
      case EventKind::kTimer:
        logic_.OnTimer(now_, actions);
        break;
    }
    oracle_.Check(logic_, event, actions);
  }

  std::mt19937_64 random_;
  TimePoint now_ = TimePoint() + std::chrono::hours(1);
  AttemptBudget retries_;
  AttemptBudget hedges_;
  const int64_t retry_tokens_;
  const int64_t hedge_tokens_;
  const size_t verdicts_one_in_;  // how slow the application is
  const std::vector<std::vector<size_t>> workers_;
  const FanOutLogic::Options options_;
  FanOutLogic logic_;
  FanOutLogicOracle oracle_;
  std::string events_;
};

TEST(FanOutLogicRandomTest, WhateverHappensTheOracleAgrees) {
  const RandomSeed seed = TakeRandomSeed();
  const int rounds = seed.replays ? 1 : 5'000;
  size_t retries = 0;
  size_t hedges_won = 0;
  size_t partial = 0;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(absl::StrCat("SLUICE_SEED=", seed.value + round));
    RandomFanOut fan_out(seed.value + round);
    fan_out.Run();
    ASSERT_FALSE(HasFailure()) << fan_out.Describe();
    retries += fan_out.result().retries;
    hedges_won += fan_out.result().hedges_won;
    partial += fan_out.result().status.ok() && !fan_out.result().failures.empty();
  }
  if (seed.replays) return;
  // Otherwise the generator has stopped producing these events.
  EXPECT_GT(retries, 500u);
  EXPECT_GT(hedges_won, 50u);
  EXPECT_GT(partial, 50u);
}

}  // namespace
}  // namespace sluice
