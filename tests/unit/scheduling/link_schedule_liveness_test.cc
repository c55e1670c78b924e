#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lib/scheduling/link_schedule.h"
#include "tests/random_seed.h"
#include "tests/unit/scheduling/grants_options.h"

// Tests that hung workers delay others only for a limited time. Such workers never respond, or never send the bytes
// that were granted to them.
namespace sluice {
namespace {

using std::chrono::nanoseconds;
using std::chrono_literals::operator""ms;

constexpr nanoseconds kRound = 11ms;  // R + B/C

// The workers of one link. Time passes in steps of a millisecond, in which 1000 bytes arrive. Not thread-safe.
class Workers {
 public:
  enum class Kind {
    kWell,        // ready `thinks` after its request; sends the granted bytes
    kNeverReady,  // hangs before its response is ready
    kNeverSends,  // hangs when its response is ready
  };
  struct Worker {
    Kind kind = Kind::kWell;
    int64_t answer_bytes = 1000;
    int64_t expected_bytes = 1000;
    nanoseconds thinks = 1ms;
    uint32_t id = 0;            // the same for all calls to one worker; 0: its share has no bound
    int64_t step_bytes = 1000;  // at most, in steps that are multiples of `every_steps`
    int64_t every_steps = 1;
  };

  explicit Workers(SchedulePolicy policy, bool shortest_first = false) {
    ScheduleOptions options = GrantsOptions();
    options.shortest_first = shortest_first;
    options.policy = policy;
    schedule_.emplace(options);
  }

  // Submits each call in a block of its own.
  void Ask(const Worker& worker) {
    states_.push_back({.worker = worker});
    const CallRequest call{.response_bytes = worker.expected_bytes, .tag = states_.size() - 1, .worker = worker.id};
    std::vector<Action> actions;
    ASSERT_TRUE(schedule_->Submit(now_, {&call, 1}, TimePoint::max(), actions).ok());
    Follow(actions);
  }

  // Starts handshakes with unreachable hosts.
  void ConnectToDeadHosts(int count, int64_t bytes) {
    for (; count > 0; --count) {
      Event([&](std::vector<Action>& actions) {
        const CallRequest handshake{.response_bytes = bytes, .tag = kHandshake};
        ASSERT_TRUE(schedule_->SubmitAhead(now_, handshake, TimePoint::max(), actions).ok());
      });
    }
  }

  void Step() {
    now_ += 1ms;
    Event([&](std::vector<Action>& actions) { schedule_->OnTimer(now_, actions); });
    int64_t link_bytes = 1000;
    // The responses take turns on the link.
    ++first_;
    ++steps_;
    for (size_t i = 0; i < states_.size(); ++i) {
      State& state = states_[(first_ + i) % states_.size()];
      if (state.asked && !state.ready && now_ >= state.ready_at) BecomeReady(state);
      if (state.ready && !state.ended) link_bytes -= Send(state, link_bytes);
    }
  }

  TimePoint now() const { return now_; }
  bool Ended(size_t worker) const { return states_[worker].ended; }
  bool WellOnesEnded() const {
    return std::all_of(states_.begin(), states_.end(),
                       [](const State& state) { return state.worker.kind != Kind::kWell || state.ended; });
  }
  // The time from ready to the last byte.
  nanoseconds LongestWait() const { return longest_wait_; }
  int64_t stalls() const { return stalls_; }
  ScheduleState state() const { return schedule_->State(); }

 private:
  static constexpr uint64_t kHandshake = ~uint64_t{0};

  struct State {
    Worker worker;
    CallId call;
    bool asked = false;
    bool ready = false;
    bool ended = false;
    int64_t granted_bytes = 0;
    int64_t received_bytes = 0;
    TimePoint ready_at = TimePoint::max();
  };

  template <typename F>
  void Event(const F& event) {
    std::vector<Action> actions;
    event(actions);
    Follow(actions);
  }

  void Follow(const std::vector<Action>& actions) {
    for (const Action& action : actions) {
      if (action.tag == kHandshake) continue;
      State& state = states_[action.tag];
      state.call = action.call;
      if (action.kind == Action::Kind::kStall) ++stalls_;
      state.granted_bytes += action.bytes;
      if (action.kind != Action::Kind::kSend) continue;
      state.asked = true;
      if (state.worker.kind != Kind::kNeverReady) state.ready_at = now_ + state.worker.thinks;
    }
  }

  void BecomeReady(State& state) {
    state.ready = true;
    const CallId call = state.call;
    const int64_t bytes = state.worker.answer_bytes;
    Event([&](std::vector<Action>& actions) { schedule_->OnReady(now_, call, bytes, actions); });
  }

  int64_t Send(State& state, int64_t link_bytes) {
    if (state.worker.kind != Kind::kWell) return 0;
    const int64_t open_bytes = std::min(state.granted_bytes, state.worker.answer_bytes) - state.received_bytes;
    const bool sends = steps_ % state.worker.every_steps == 0;
    const int64_t bytes = sends ? std::min({open_bytes, link_bytes, state.worker.step_bytes}) : 0;
    if (bytes == 0 && open_bytes > 0) return 0;
    state.received_bytes += bytes;
    const CallId call = state.call;
    Event([&](std::vector<Action>& actions) { schedule_->OnReceived(now_, call, bytes, actions); });
    if (state.received_bytes < state.worker.answer_bytes) return bytes;
    state.ended = true;
    longest_wait_ = std::max(longest_wait_, now_ - state.ready_at);
    Event([&](std::vector<Action>& actions) { schedule_->OnFinished(now_, call, CallEnd::kArrived, actions); });
    return bytes;
  }

  std::optional<LinkSchedule> schedule_;
  TimePoint now_;
  nanoseconds longest_wait_{0};
  int64_t stalls_ = 0;
  size_t first_ = 0;
  int64_t steps_ = 0;
  std::vector<State> states_;
};

using Kind = Workers::Kind;

// A hung worker holds early bytes permanently, while small responses come and go and other workers think. A large ready
// response must fit in addition to all of these.
TEST(LivenessTest, AHungEarlyCallDoesNotHoldUpALargeReadyAnswer) {
  Workers workers(SchedulePolicy::kGrants);
  workers.Ask({.kind = Kind::kNeverReady, .answer_bytes = 3300, .expected_bytes = 3300});
  ASSERT_EQ(workers.state().in_flight_bytes, 3300) << "it left with its grant";
  workers.Ask({.answer_bytes = 60'000, .expected_bytes = 1000});
  for (int step = 0; step < 400 && !workers.Ended(1); ++step) {
    workers.Ask({.answer_bytes = 300, .expected_bytes = 300});
    if (step % 10 == 0) workers.Ask({.expected_bytes = 3000, .thinks = 250ms});
    workers.Step();
  }
  EXPECT_TRUE(workers.Ended(1));
  EXPECT_EQ(workers.stalls(), 0);
}

// Dead hosts hold a third of the budget, and a hung early call another third. A part of a response and the headers need
// more than the last third.
TEST(LivenessTest, DeadHostsAndAHungEarlyCallDoNotHoldUpALargeReadyAnswer) {
  Workers workers(SchedulePolicy::kGrants);
  workers.Ask({.kind = Kind::kNeverReady, .answer_bytes = 3300, .expected_bytes = 3300});
  ASSERT_EQ(workers.state().in_flight_bytes, 3300) << "it left with its grant";
  workers.ConnectToDeadHosts(300, 200);
  workers.Ask({.answer_bytes = 60'000, .expected_bytes = 1000});
  for (int step = 0; step < 400; ++step) workers.Step();
  EXPECT_GT(workers.state().waiting_calls, 0) << "some of the hosts wait for their turn";
  EXPECT_TRUE(workers.Ended(1));
}

// Dead hosts hold a third of the budget, and slow workers count as another third. A slow worker continues to send, so
// nothing stalls, but its bytes come too slowly to wait for them.
TEST(LivenessTest, DeadHostsAndSlowWorkersDoNotHoldUpALargeReadyAnswer) {
  Workers workers(SchedulePolicy::kGrants);
  for (uint32_t id = 1; id <= 8; ++id) {
    workers.Ask({.answer_bytes = 60'000, .expected_bytes = 1000, .id = id, .step_bytes = 20, .every_steps = 20});
  }
  for (int step = 0; step < 1000; ++step) workers.Step();
  workers.ConnectToDeadHosts(2000, 200);
  for (int step = 0; step < 10; ++step) workers.Step();
  workers.Ask({.answer_bytes = 60'000, .expected_bytes = 1000, .id = 9});
  for (int step = 0; step < 1000; ++step) workers.Step();
  EXPECT_GT(workers.state().waiting_calls, 0) << "some of the hosts wait for their turn";
  EXPECT_TRUE(workers.Ended(8));
}

// The response that comes with a request needs more than the two thirds that dead hosts leave.
TEST(LivenessTest, DeadHostsDoNotHoldUpALargeRequestInRolling) {
  Workers workers(SchedulePolicy::kRolling);
  workers.ConnectToDeadHosts(300, 200);
  workers.Ask({.answer_bytes = 9000, .expected_bytes = 9000});
  for (int step = 0; step < 400; ++step) workers.Step();
  EXPECT_GT(workers.state().waiting_calls, 0) << "some of the hosts wait for their turn";
  EXPECT_TRUE(workers.Ended(0));
}

TEST(LivenessTest, RollingGetsPastHungWorkers) {
  Workers workers(SchedulePolicy::kRolling);
  for (int i = 0; i < 3; ++i) workers.Ask({.kind = Kind::kNeverReady, .expected_bytes = 9000});
  workers.Ask({});
  for (int step = 0; step < 3 * (kStallTime / 1ms) + 20; ++step) workers.Step();
  EXPECT_TRUE(workers.Ended(3));
  EXPECT_EQ(workers.stalls(), 3);
}

TEST(LivenessTest, ADeadRackOfStragglersDoesNotMakeEverythingGoAlone) {
  Workers workers(SchedulePolicy::kGrants);
  for (int i = 0; i < 1000; ++i) workers.Ask({.kind = Kind::kNeverReady, .expected_bytes = 3300});
  const TimePoint asked = workers.now();
  while (workers.state().ungranted_calls + workers.state().in_flight_calls < 1000) workers.Step();
  EXPECT_LT(workers.now() - asked, 60 * kStallTime);
  const size_t first = 1000;
  for (int i = 0; i < 300; ++i) workers.Ask({.answer_bytes = 1500, .expected_bytes = 1500});
  const TimePoint began = workers.now();
  int64_t most_in_flight = 0;
  while (!workers.Ended(first + 299) && workers.now() < began + 20'000ms) {
    workers.Step();
    most_in_flight = std::max(most_in_flight, workers.state().in_flight_calls);
  }
  EXPECT_TRUE(workers.WellOnesEnded());
  EXPECT_GT(most_in_flight, 2) << "answers go side by side";
  // The responses take 450 ms on the link.
  EXPECT_LT(workers.now() - began, 1000ms);
}

TEST(LivenessTest, ALargeAnswerDoesNotBlockSmallOnes) {
  Workers workers(SchedulePolicy::kGrants, true);
  workers.Ask({.answer_bytes = 1'000'000, .expected_bytes = 1'000'000});
  for (int step = 0; step < 100; ++step) workers.Step();
  for (size_t i = 1; i <= 20; ++i) {
    workers.Ask({.answer_bytes = 500, .expected_bytes = 500});
    const TimePoint asked = workers.now();
    while (!workers.Ended(i)) {
      workers.Step();
      ASSERT_LT(workers.now() - asked, 5 * kRound);
    }
  }
  EXPECT_FALSE(workers.Ended(0));
}

class HungWorkersTest : public ::testing::TestWithParam<SchedulePolicy> {};

// With k hung workers, a ready response waits at most k + 1 stall timeouts, plus the time for the bytes ahead of it.
TEST_P(HungWorkersTest, DelayAReadyAnswerByAStallTimeoutEachAtMost) {
  uint64_t seed = TakeRandomSeed().value;
  for (int round = 0; round < 60; ++round, ++seed) {
    SCOPED_TRACE("replay with SLUICE_SEED=" + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto between = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    Workers workers(GetParam());
    const int64_t hung = between(0, 8);
    std::vector<Workers::Worker> asked;
    int64_t well_bytes = 0;
    for (int64_t i = between(1, 40); i > 0; --i) {
      const int64_t bytes = between(1, between(0, 1) == 0 ? 1000 : 15'000);
      asked.push_back({.answer_bytes = bytes, .expected_bytes = between(1, 12'000), .thinks = between(1, 40) * 1ms});
      well_bytes += bytes;
    }
    for (int64_t i = 0; i < hung; ++i) {
      const Kind kind = between(0, 1) == 0 ? Kind::kNeverReady : Kind::kNeverSends;
      asked.push_back({.kind = kind, .answer_bytes = between(1, 50'000), .expected_bytes = between(1, 12'000)});
    }
    std::shuffle(asked.begin(), asked.end(), random);
    // Other calls to the worker of a hung call must still get their turns.
    const int64_t ids = between(0, 10);
    for (Workers::Worker& worker : asked) {
      worker.id = static_cast<uint32_t>(between(0, ids));
      workers.Ask(worker);
      for (int64_t steps = between(0, 3); steps > 0; --steps) workers.Step();
    }
    // The bytes ahead take a millisecond for 1000 bytes, and a round of three steps for each part and each response.
    const nanoseconds ahead = (well_bytes / 1000 + 3 * (well_bytes / 2000 + std::ssize(asked))) * 1ms;
    const TimePoint limit = workers.now() + (hung + 1) * kStallTime + ahead + 41ms * std::ssize(asked);
    while (!workers.WellOnesEnded() && workers.now() < limit) workers.Step();
    ASSERT_TRUE(workers.WellOnesEnded());
    ASSERT_LE(workers.LongestWait(), (hung + 1) * kStallTime + ahead);
    ASSERT_LE(workers.stalls(), hung) << "a worker that sends does not stall";
  }
}

INSTANTIATE_TEST_SUITE_P(, HungWorkersTest, ::testing::Values(SchedulePolicy::kRolling, SchedulePolicy::kGrants),
                         [](const auto& info) { return std::string(SchedulePolicyName(info.param)); });

}  // namespace
}  // namespace sluice
