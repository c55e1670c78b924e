#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/has_code.h"
#include "tests/random_seed.h"
#include "tests/unit/scheduling/grants_options.h"
#include "tests/unit/scheduling/schedule_driver.h"

// Tests the turns of byte tunnels: that their windows fit the budget beside each other and beside calls.
namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using sluice::testing::HasCode;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Values;

constexpr int64_t kWindow = 3000;

// Three windows fit the budget of 10,000 bytes.
class TunnelTurnTest : public ::testing::TestWithParam<SchedulePolicy> {
 protected:
  ScheduleDriver link_{OptionsWith(GetParam())};
};

TEST_P(TunnelTurnTest, TheWindowIsGrantedAtOnceWhileItFits) {
  EXPECT_THAT(link_.AskForTurn(At(0ms), kWindow), ElementsAre("grant 0 3000"));
  EXPECT_THAT(link_.AskForTurn(At(0ms), kWindow), ElementsAre("grant 1 3000"));
  EXPECT_THAT(link_.AskForTurn(At(0ms), kWindow), ElementsAre("grant 2 3000"));
  EXPECT_THAT(link_.AskForTurn(At(0ms), kWindow), IsEmpty());
  EXPECT_EQ(link_.state().in_flight_bytes, 9000);
}

TEST_P(TunnelTurnTest, TheWindowStaysChargedWhileItSlides) {
  link_.AskForTurn(At(0ms), kWindow);
  for (int i = 1; i <= 10; ++i) {
    EXPECT_THAT(link_.Receive(At(i * 1ms), 0, 2000), IsEmpty());
    EXPECT_EQ(link_.state().in_flight_bytes, kWindow);
  }
  link_.Finish(At(11ms), 0);
  EXPECT_EQ(link_.state().in_flight_bytes, 0);
}

TEST_P(TunnelTurnTest, TheEndOfATurnLetsTheNextBegin) {
  for (int i = 0; i < 5; ++i) link_.AskForTurn(At(0ms), kWindow);
  EXPECT_THAT(link_.Finish(At(1ms), 1), ElementsAre("grant 3 3000"));
  // Bytes of this one may still be on their way, until a full port has drained.
  EXPECT_THAT(link_.Finish(At(2ms), 0, CallEnd::kAborted), IsEmpty());
  EXPECT_THAT(link_.Timer(At(2ms + kDrainTime)), ElementsAre("grant 4 3000"));
}

TEST_P(TunnelTurnTest, ATurnThatWaitsEndsWithoutAWindow) {
  for (int i = 0; i < 5; ++i) link_.AskForTurn(At(0ms), kWindow);
  EXPECT_THAT(link_.Finish(At(1ms), 3), IsEmpty());
  EXPECT_THAT(link_.Finish(At(1ms), 0), ElementsAre("grant 4 3000"));
}

TEST_P(TunnelTurnTest, AWindowLargerThanTheBudgetIsAlone) {
  EXPECT_THAT(link_.AskForTurn(At(0ms), 20'000), ElementsAre("grant 0 20000"));
  EXPECT_THAT(link_.AskForTurn(At(0ms), kWindow), IsEmpty());
  EXPECT_THAT(link_.Finish(At(1ms), 0), ElementsAre("grant 1 3000"));
}

TEST_P(TunnelTurnTest, AWindowThatIsNotUsedStalls) {
  for (int i = 0; i < 4; ++i) link_.AskForTurn(At(0ms), kWindow);
  EXPECT_THAT(link_.Timer(At(kStallTime)), ElementsAre("stall 0", "stall 1", "stall 2", "grant 3 3000"));
}

TEST_P(TunnelTurnTest, AWiderWindowIsGrantedInAddition) {
  link_.AskForTurn(At(0ms), kWindow);
  EXPECT_THAT(link_.Ready(At(1ms), 0, kWindow + 2000), ElementsAre("grant 0 2000"));
  EXPECT_EQ(link_.state().in_flight_bytes, 5000);
  link_.Receive(At(2ms), 0, 4000);
  EXPECT_EQ(link_.state().in_flight_bytes, 5000);
}

TEST_P(TunnelTurnTest, TurnsAndCallsShareTheBudget) {
  link_.AskForTurn(At(0ms), kWindow);
  link_.AskForTurn(At(0ms), kWindow);
  link_.Submit(At(0ms), {5000});
  EXPECT_EQ(link_.state().in_flight_bytes, 6000);
  EXPECT_EQ(link_.state().in_flight_calls + link_.state().ungranted_calls + link_.state().waiting_calls, 3);
}

// Such as on loopback, whose packets have 64 KB. Each window is alone, and another turn always waits.
TEST_P(TunnelTurnTest, ACallHasItsTurnBetweenWindowsThatFillTheBudget) {
  constexpr int64_t kFull = 20'000;
  EXPECT_THAT(link_.AskForTurn(At(0ms), kFull), ElementsAre("grant 0 20000"));
  link_.AskForTurn(At(0ms), kFull);
  EXPECT_THAT(link_.Submit(At(0ms), {500}), IsEmpty());
  link_.AskForTurn(At(0ms), kFull);
  ScheduleDriver::Words words = link_.Finish(At(1ms), 0);
  for (const std::string& word : link_.Finish(At(2ms), 1)) words.push_back(word);
  EXPECT_THAT(words, Contains("send 2"));
}

TEST_P(TunnelTurnTest, ATurnDoesNotTakeAPlaceInTheQueue) {
  ScheduleOptions options = OptionsWith(GetParam());
  options.queue_limit = 1;
  ScheduleDriver link(options);
  link.SubmitParked(At(0ms), 1000);
  EXPECT_THAT(link.AskForTurn(At(0ms), kWindow), ElementsAre("grant 1 3000"));
}

INSTANTIATE_TEST_SUITE_P(, TunnelTurnTest, Values(SchedulePolicy::kGrants, SchedulePolicy::kRolling),
                         [](const auto& info) { return std::string(SchedulePolicyName(info.param)); });

TEST(TunnelTurnRankTest, ATurnThatExpectsLessComesFirst) {
  ScheduleOptions options = GrantsOptions();
  options.shortest_first = true;
  ScheduleDriver link(options);
  for (int i = 0; i < 3; ++i) link.AskForTurn(At(0ms), kWindow);
  link.AskForTurn(At(0ms), kWindow, 1 << 20);
  link.AskForTurn(At(0ms), kWindow);
  EXPECT_THAT(link.Finish(At(1ms), 0), ElementsAre("grant 4 3000"));
  EXPECT_THAT(link.Finish(At(1ms), 1), ElementsAre("grant 3 3000"));
}

// The class of the turn is charged for all that slides, so the class of the calls catches up.
TEST(TunnelTurnClassTest, BytesThatSlideCountForTheClass) {
  ScheduleOptions options = GrantsOptions();
  options.classes = {{.name = "tunnels", .weight = 1}, {.name = "calls", .weight = 1}};
  ScheduleDriver link(options);
  link.AskForTurn(At(0ms), kWindow);
  link.set_traffic_class(1);
  link.AskForTurn(At(0ms), kWindow);
  link.AskForTurn(At(0ms), kWindow);
  link.AskForTurn(At(0ms), kWindow);
  link.set_traffic_class(0);
  link.AskForTurn(At(0ms), kWindow);
  for (int i = 0; i < 4; ++i) link.Receive(At(1ms), 0, kWindow);
  EXPECT_EQ(link.schedule().ClassState(0).received_bytes, 4 * kWindow);
  EXPECT_THAT(link.Finish(At(2ms), 0), ElementsAre("grant 3 3000"));
  EXPECT_THAT(link.Finish(At(2ms), 1), ElementsAre("grant 4 3000"));
}

// Turns that use a sixth of their window leave the share of their class as it is.
TEST(TunnelTurnClassTest, UnusedPartsOfWindowsDoNotCountForTheClass) {
  ScheduleOptions options = GrantsOptions();
  options.classes = {{.name = "short", .weight = 2}, {.name = "long", .weight = 1}};
  ScheduleDriver link(options);
  std::deque<uint64_t> granted;
  std::vector<size_t> class_of;  // by tag
  const auto take = [&granted](const ScheduleDriver::Words& words) {
    for (const std::string& word : words) {
      const std::vector<std::string> parts = absl::StrSplit(word, ' ');
      ASSERT_EQ(parts[0], "grant");
      granted.push_back(std::stoul(parts[1]));
    }
  };
  const auto ask = [&](size_t traffic_class) {
    link.set_traffic_class(traffic_class);
    class_of.push_back(traffic_class);
    take(link.AskForTurn(At(0ms), kWindow));
  };
  for (int i = 0; i < 4; ++i) {
    ask(0);
    ask(1);
  }
  for (int i = 0; i < 2000; ++i) {
    ASSERT_FALSE(granted.empty());
    const uint64_t tag = granted.front();
    granted.pop_front();
    take(link.Receive(At(0ms), tag, class_of[tag] == 0 ? kWindow / 6 : kWindow));
    take(link.Finish(At(0ms), tag));
    ask(class_of[tag]);
  }
  const double short_bytes = static_cast<double>(link.schedule().ClassState(0).received_bytes);
  const double long_bytes = static_cast<double>(link.schedule().ClassState(1).received_bytes);
  EXPECT_NEAR(short_bytes / long_bytes, 2, 0.1);
}

// Tunnels and calls at random. All charges must fit the budget at any time, and everything must end.
class RandomTunnels {
 public:
  RandomTunnels(uint64_t seed, SchedulePolicy policy) : random_(seed), schedule_(WithoutStalls(policy)) {}

  void Run() {
    for (int event = 0; event < 400; ++event) {
      now_ += std::chrono::microseconds(Below(300));
      if (event < 300 && Below(3) == 0) Begin();
      if (!out_.empty()) Step(out_[Below(out_.size())]);
      std::vector<Action> actions;
      schedule_.OnTimer(At(now_), actions);
      Carry(actions);
      ASSERT_LE(schedule_.State().in_flight_bytes, 10'000);
    }
    while (!out_.empty()) {
      const size_t before = out_.size();
      for (size_t i = out_.size(); i-- > 0;) {
        if (i < out_.size() && out_[i].granted > 0) End(out_[i]);
      }
      ASSERT_LT(out_.size(), before) << "a turn or a call waits for nothing";
    }
    now_ += 20ms;
    std::vector<Action> actions;
    schedule_.OnTimer(At(now_), actions);
    EXPECT_EQ(schedule_.State().in_flight_bytes, 0);
    EXPECT_EQ(schedule_.State().submitted_calls, schedule_.State().ended_calls);
  }

 private:
  struct Out {
    CallId id;
    uint64_t tag = 0;
    bool tunnel = false;
    int64_t bytes = 0;    // of the response, or of the window
    int64_t granted = 0;  // and not received
  };

  static ScheduleOptions WithoutStalls(SchedulePolicy policy) {
    ScheduleOptions options = OptionsWith(policy);
    options.stall_timeout = absl::Hours(1);
    return options;
  }
  size_t Below(size_t bound) { return std::uniform_int_distribution<size_t>(0, bound - 1)(random_); }

  void Begin() {
    const bool tunnel = Below(2) == 0;
    const auto bytes = static_cast<int64_t>(1000 * (1 + Below(3)));
    out_.push_back({.tag = ++last_tag_, .tunnel = tunnel, .bytes = bytes});
    std::vector<Action> actions;
    std::vector<CallId> ids;
    const CallRequest request{.response_bytes = tunnel ? bytes * static_cast<int64_t>(1 + Below(50)) : bytes,
                              .tag = last_tag_,
                              .window_bytes = tunnel ? bytes : 0};
    ASSERT_TRUE(schedule_.Submit(At(now_), {request}, TimePoint::max(), actions, &ids).ok());
    out_.back().id = ids[0];
    Carry(actions);
  }
  // A tunnel receives, and its window slides; a call receives until its end. Either may end early.
  void Step(Out& out) {
    if (out.granted == 0) return;
    if (Below(6) == 0) return End(out);
    const auto bytes = static_cast<int64_t>(1 + Below(static_cast<size_t>(out.granted)));
    std::vector<Action> actions;
    schedule_.OnReceived(At(now_), out.id, bytes, actions);
    if (!out.tunnel) out.granted -= bytes;
    if (!out.tunnel && out.granted == 0) {
      schedule_.OnFinished(At(now_), out.id, CallEnd::kArrived, actions);
      Forget(out.tag);
    }
    Carry(actions);
  }
  void End(const Out& out) {
    std::vector<Action> actions;
    const uint64_t tag = out.tag;
    schedule_.OnFinished(At(now_), out.id, Below(2) == 0 ? CallEnd::kArrived : CallEnd::kAborted, actions);
    Forget(tag);
    Carry(actions);
    now_ += 20ms;  // what was aborted drains
    std::vector<Action> later;
    schedule_.OnTimer(At(now_), later);
    Carry(later);
  }
  void Forget(uint64_t tag) {
    std::erase_if(out_, [tag](const Out& out) { return out.tag == tag; });
  }
  void Carry(const std::vector<Action>& actions) {
    for (const Action& action : actions) {
      const auto found = std::find_if(out_.begin(), out_.end(), [&](const Out& out) { return out.tag == action.tag; });
      ASSERT_NE(found, out_.end());
      ASSERT_NE(action.kind, Action::Kind::kStall) << "times are short";
      found->granted += action.bytes;
      if (found->tunnel) {
        ASSERT_EQ(action.kind, Action::Kind::kGrant);
        ASSERT_EQ(found->granted, found->bytes) << "the whole window at once";
      }
      if (action.kind != Action::Kind::kSend) continue;
      std::vector<Action> more;
      schedule_.OnReady(At(now_), action.call, found->bytes, more);
      Carry(more);
    }
  }

  std::mt19937_64 random_;
  LinkSchedule schedule_;
  std::chrono::nanoseconds now_{0};
  uint64_t last_tag_ = 0;
  std::vector<Out> out_;
};

TEST(TunnelTurnRandomTest, WindowsAndCallsFitTheBudgetAndEnd) {
  auto [seed, replays] = TakeRandomSeed();
  for (const uint64_t last = seed + (replays ? 1 : 300); seed < last; ++seed) {
    for (const SchedulePolicy policy : {SchedulePolicy::kGrants, SchedulePolicy::kRolling}) {
      RandomTunnels(seed, policy).Run();
      ASSERT_FALSE(::testing::Test::HasFatalFailure() || ::testing::Test::HasFailure())
          << "replay with SLUICE_SEED=" << seed;
    }
  }
}

TEST(TunnelTurnCheckTest, AWindowOutOfBoundsIsRefused) {
  LinkSchedule schedule(GrantsOptions());
  std::vector<Action> actions;
  for (const int64_t window : {int64_t{-1}, int64_t{1001}}) {
    const absl::Status status =
        schedule.Submit(At(0ms), {{.response_bytes = 1000, .window_bytes = window}}, TimePoint::max(), actions)
            .status();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(std::string(status.message()), HasSubstr("window_bytes: "));
  }
}

TEST(TunnelTurnCheckTest, UnscheduledGrantsEachTurnAtOnce) {
  ScheduleDriver link(OptionsWith(SchedulePolicy::kUnscheduled));
  for (int turn = 0; turn < 3; ++turn) EXPECT_EQ(link.AskForTurn(At(0ms), 8000).size(), 1);
}

// Tunnels may have been connected with another policy.
TEST(TunnelTurnCheckTest, BatchesGrantTurnsWithinTheBudget) {
  ScheduleDriver link(OptionsWith(SchedulePolicy::kBatches));
  EXPECT_EQ(link.AskForTurn(At(0ms), 8000).size(), 1);
  EXPECT_THAT(link.AskForTurn(At(0ms), 8000), IsEmpty());
  EXPECT_EQ(link.Finish(At(1ms), 0).size(), 1);
}

}  // namespace
}  // namespace sluice
