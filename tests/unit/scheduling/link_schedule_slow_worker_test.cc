#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "lib/scheduling/link_schedule.h"
#include "tests/unit/scheduling/grants_options.h"
#include "tests/unit/scheduling/schedule_driver.h"

// Tests how much slow and paused workers may cost others: their own bytes, and a share of the budget.
namespace sluice {
namespace {

using std::chrono_literals::operator""ms;

// The workers of one link, each with its own rate. Time passes in steps of a millisecond, in which 1000 bytes arrive.
// Each worker is ready at once, and its responses take turns, one packet at a time. Not thread-safe.
class Link {
 public:
  explicit Link(SchedulePolicy policy) { schedule_.emplace(OptionsWith(policy)); }

  // From now on, the worker sends at most `rate` bytes per millisecond.
  void SetRate(uint32_t worker, int64_t rate) { workers_[worker].rate = rate; }

  // Requests this response, and again each time it has arrived.
  void AskAgainAndAgain(uint32_t worker, int64_t answer_bytes) {
    answers_.push_back({.worker = worker, .bytes = answer_bytes});
    Submit(answers_.size() - 1);
  }

  void Run(int64_t steps) {
    for (; steps > 0; --steps) Step();
  }

  // Returns the bytes that have arrived from a worker since the last call.
  int64_t Take(uint32_t worker) { return std::exchange(workers_[worker].received_bytes, 0); }
  int64_t TakeAll(uint32_t first, uint32_t last) {
    int64_t bytes = 0;
    for (uint32_t worker = first; worker <= last; ++worker) bytes += Take(worker);
    return bytes;
  }
  // Returns the longest time from request to end since the last call.
  std::chrono::nanoseconds TakeLongest(uint32_t worker) { return std::exchange(workers_[worker].longest, 0ms); }
  WorkerLoad load(uint32_t worker) const { return schedule_->Load(worker); }
  ScheduleState state() const { return schedule_->State(); }
  // Returns the bytes that the worker may send at once.
  int64_t GrantedBytes(uint32_t worker) const {
    int64_t bytes = 0;
    for (const Answer& answer : answers_) {
      if (answer.worker == worker) bytes += std::min(answer.granted_bytes, answer.bytes) - answer.sent_bytes;
    }
    return bytes;
  }

 private:
  struct Answer {
    uint32_t worker = 0;
    int64_t bytes = 0;
    CallId call;
    bool out = false;
    bool ready = false;
    int64_t granted_bytes = 0;
    int64_t sent_bytes = 0;
    int64_t received_bytes = 0;
    TimePoint asked;
  };
  struct Packet {
    uint64_t tag = 0;
    int64_t bytes = 0;
  };
  struct Worker {
    int64_t rate = 10'000;
    int64_t credit = 0;  // bytes that its own link may carry now
    int64_t received_bytes = 0;
    std::chrono::nanoseconds longest{0};
  };

  void Submit(uint64_t tag) {
    Answer& answer = answers_[tag];
    answer = {.worker = answer.worker, .bytes = answer.bytes, .asked = now_};
    const CallRequest call{.response_bytes = answer.bytes, .tag = tag, .worker = answer.worker};
    std::vector<Action> actions;
    ASSERT_TRUE(schedule_->Submit(now_, {&call, 1}, TimePoint::max(), actions).ok());
    Follow(actions);
  }

  template <typename F>
  void Event(const F& event) {
    std::vector<Action> actions;
    event(actions);
    Follow(actions);
  }

  void Follow(const std::vector<Action>& actions) {
    for (const Action& action : actions) {
      Answer& answer = answers_[action.tag];
      answer.call = action.call;
      answer.out = true;
      answer.granted_bytes += action.bytes;
    }
  }

  void Step() {
    now_ += 1ms;
    Event([&](std::vector<Action>& actions) { schedule_->OnTimer(now_, actions); });
    for (auto& [id, worker] : workers_)
      worker.credit = std::min(worker.credit + worker.rate, std::max<int64_t>(worker.rate, 1000));
    for (size_t tag = 0; tag < answers_.size(); ++tag) {
      Answer& answer = answers_[tag];
      if (!answer.out || answer.ready || workers_[answer.worker].rate == 0) continue;
      answer.ready = true;
      Event([&](std::vector<Action>& actions) { schedule_->OnReady(now_, answer.call, answer.bytes, actions); });
    }
    for (size_t tag = 0; tag < answers_.size(); ++tag) Send(tag);
    for (int64_t link_bytes = 1000; link_bytes > 0 && !port_.empty();) {
      Packet& packet = port_.front();
      const int64_t bytes = std::min(packet.bytes, link_bytes);
      link_bytes -= bytes;
      packet.bytes -= bytes;
      const uint64_t tag = packet.tag;
      if (packet.bytes == 0) port_.pop_front();
      Receive(tag, bytes);
    }
  }

  // Sends granted bytes to the port, which is first in, first out.
  void Send(uint64_t tag) {
    Answer& answer = answers_[tag];
    Worker& worker = workers_[answer.worker];
    while (answer.ready) {
      const int64_t bytes =
          std::min({answer.granted_bytes, answer.bytes, answer.sent_bytes + 1000}) - answer.sent_bytes;
      if (bytes <= 0 || worker.credit < bytes) return;
      worker.credit -= bytes;
      answer.sent_bytes += bytes;
      port_.push_back({.tag = tag, .bytes = bytes});
    }
  }

  void Receive(uint64_t tag, int64_t bytes) {
    Answer& answer = answers_[tag];
    Worker& worker = workers_[answer.worker];
    worker.received_bytes += bytes;
    answer.received_bytes += bytes;
    const CallId call = answer.call;
    Event([&](std::vector<Action>& actions) { schedule_->OnReceived(now_, call, bytes, actions); });
    if (answers_[tag].received_bytes < answers_[tag].bytes) return;
    worker.longest = std::max(worker.longest, now_ - answers_[tag].asked);
    Event([&](std::vector<Action>& actions) { schedule_->OnFinished(now_, call, CallEnd::kArrived, actions); });
    Submit(tag);
  }

  std::optional<LinkSchedule> schedule_;
  TimePoint now_{std::chrono::seconds(1)};
  std::deque<Packet> port_;
  std::deque<Answer> answers_;
  std::map<uint32_t, Worker> workers_;
};

class SlowWorkerTest : public ::testing::TestWithParam<SchedulePolicy> {
 protected:
  // Healthy workers 1 to 20, each with one small response at a time. Together they can fill the link.
  static constexpr uint32_t kHealthy = 20;
  void AskTheHealthy() {
    for (uint32_t worker = 1; worker <= kHealthy; ++worker) {
      link_.SetRate(worker, 10'000);
      link_.AskAgainAndAgain(worker, 1000);
    }
  }
  // Returns the healthy workers' bytes per millisecond, and sets longest_ to the longest time of their responses.
  double Rate(int64_t steps) {
    Take();
    link_.Run(steps);
    longest_ = 0ms;
    for (uint32_t worker = 1; worker <= kHealthy; ++worker) longest_ = std::max(longest_, link_.TakeLongest(worker));
    return static_cast<double>(Take()) / static_cast<double>(steps);
  }
  int64_t Take() { return link_.TakeAll(1, kHealthy); }
  std::chrono::nanoseconds longest_{0};
  Link link_{GetParam()};
};

TEST_P(SlowWorkerTest, OneLargeResponseCostsTheOthersNoMoreThanItsBytes) {
  AskTheHealthy();
  link_.Run(100);
  const double alone = Rate(1000);
  const std::chrono::nanoseconds longest_alone = longest_;
  for (const int64_t rate : {1, 10, 100}) {
    SCOPED_TRACE(rate);
    link_.SetRate(99, rate);
    if (rate == 1) link_.AskAgainAndAgain(99, 1'000'000'000);
    link_.Run(1000);
    link_.Take(99);
    EXPECT_GE(Rate(20'000), 0.97 * (alone - static_cast<double>(rate)));
    EXPECT_LE(longest_, longest_alone * 3 / 2);
    EXPECT_GE(link_.Take(99), 20'000 * rate * 8 / 10) << "it gets what it can take";
  }
}

TEST_P(SlowWorkerTest, ManySmallResponsesCostTheOthersNoMoreThanTheirBytes) {
  AskTheHealthy();
  link_.Run(100);
  const double alone = Rate(1000);
  for (uint32_t slow = 100; slow < 103; ++slow) {
    link_.SetRate(slow, 10);
    for (int i = 0; i < 4; ++i) link_.AskAgainAndAgain(slow, i % 2 == 0 ? 1000 : 9000);
  }
  link_.Run(3000);
  EXPECT_GE(Rate(20'000), 0.97 * (alone - 30));
}

TEST_P(SlowWorkerTest, ARackOfSlowWorkersLeavesTwoThirdsOfTheBudget) {
  AskTheHealthy();
  link_.Run(100);
  const double alone = Rate(1000);
  for (uint32_t slow = 100; slow < 130; ++slow) {
    link_.SetRate(slow, 1);
    link_.AskAgainAndAgain(slow, 1'000'000);
  }
  link_.Run(20'000);
  EXPECT_GE(Rate(20'000), 0.9 * (alone - 30));
}

// A cause that is common to all of them may end, and then all of their bytes come at once.
TEST_P(SlowWorkerTest, ManySlowWorkersHaveLittleMoreThanTheBudgetOutstanding) {
  for (uint32_t slow = 100; slow < 400; ++slow) {
    link_.SetRate(slow, 1);
    link_.AskAgainAndAgain(slow, 1'000'000);
  }
  link_.Run(20'000);
  int64_t slow_workers = 0;
  for (uint32_t slow = 100; slow < 400; ++slow) slow_workers += link_.load(slow).slow ? 1 : 0;
  EXPECT_GT(slow_workers, 10);
  for (int i = 0; i < 100; ++i) {
    link_.Run(100);
    EXPECT_LE(link_.state().in_flight_bytes, link_.state().budget_bytes * 13 / 10 + 2 * 1000);  // packets
  }
}

TEST_P(SlowWorkerTest, AWorkerThatIsFastAgainHasItsRateAgain) {
  AskTheHealthy();
  link_.SetRate(99, 1);
  link_.AskAgainAndAgain(99, 1'000'000'000);
  link_.Run(2000);
  ASSERT_TRUE(link_.load(99).slow);
  link_.SetRate(99, 10'000);
  link_.Run(1000);
  EXPECT_FALSE(link_.load(99).slow);
  link_.Take(99);
  link_.Run(1000);
  EXPECT_GE(link_.Take(99), 200'000);
}

TEST_P(SlowWorkerTest, APausedWorkerDoesNotStopTheOthers) {
  AskTheHealthy();
  link_.SetRate(99, 10'000);
  link_.AskAgainAndAgain(99, 1'000'000);
  link_.Run(1000);
  const double before = Rate(5000);
  link_.SetRate(99, 0);
  EXPECT_GE(Rate(200), before * 9 / 10);
  link_.SetRate(99, 10'000);
  EXPECT_GE(Rate(5000), before * 97 / 100);
}

// A worker has at most twice its share outstanding, and its share is a packet after a stall.
TEST_P(SlowWorkerTest, APausedWorkerComesBackWithTwoPacketsForEachStallTimeout) {
  AskTheHealthy();
  link_.SetRate(99, 10'000);
  for (int i = 0; i < 20; ++i) link_.AskAgainAndAgain(99, 10'000);
  link_.Run(1000);
  link_.SetRate(99, 0);
  link_.Run(300);
  const int64_t before = link_.GrantedBytes(99);
  link_.Run(3000);
  EXPECT_LE(link_.GrantedBytes(99), before + 10 * 2 * 1000);
}

// Without other workers, a slow worker delays no other, and the schedule cannot recognise it as slow.
TEST_P(SlowWorkerTest, ASlowWorkerAloneHasTheBudget) {
  link_.SetRate(99, 100);
  link_.AskAgainAndAgain(99, 1'000'000'000);
  link_.Run(5000);
  EXPECT_FALSE(link_.load(99).slow);
  EXPECT_EQ(link_.load(99).share_bytes, 10'000);
  link_.Take(99);
  link_.Run(1000);
  EXPECT_GE(link_.Take(99), 90'000);
}

// If slow workers hold the whole budget, no bytes of others arrive, so the schedule's timer must find them.
TEST(LinkScheduleLongLapTest, TheTimerFindsSlowWorkersThatHoldTheBudget) {
  LinkSchedule schedule(GrantsOptions());
  const TimePoint now(std::chrono::seconds(1));
  std::vector<Action> actions;
  for (uint32_t worker = 1; worker <= 4; ++worker) {
    const CallRequest call{.response_bytes = 100'000, .tag = worker, .worker = worker};
    ASSERT_TRUE(schedule.Submit(now, {&call, 1}, TimePoint::max(), actions).ok());
  }
  const std::vector<Action> sent = std::exchange(actions, {});
  ASSERT_EQ(sent.size(), 4u);
  for (const Action& action : sent) schedule.OnReady(now, action.call, 100'000, actions);
  constexpr std::chrono::nanoseconds kLongLap = 110ms;  // ten drain times
  ASSERT_EQ(schedule.NextTimer(), now + kLongLap);
  schedule.OnTimer(now + kLongLap, actions);
  for (uint32_t worker = 1; worker <= 2; ++worker) EXPECT_TRUE(schedule.Load(worker).slow) << worker;
  EXPECT_GT(schedule.NextTimer(), now + kLongLap);
}

INSTANTIATE_TEST_SUITE_P(, SlowWorkerTest, ::testing::Values(SchedulePolicy::kRolling, SchedulePolicy::kGrants),
                         [](const auto& info) { return std::string(SchedulePolicyName(info.param)); });

// A repeated OnReady means that the caller has more room, and is no time of the worker. If it counted, the worker would
// seem far away, and two budgets of others within two round trips would not make it late.
TEST(WorkerRoundTripTest, OnlyTheFirstOnReadyOfAResponseCounts) {
  ScheduleDriver link(GrantsOptions());
  link.set_may_idle(true);  // no early bytes
  link.set_worker(1);
  link.Submit(At(0ms), {3000});
  link.Ready(At(1ms), 0, 3000);
  for (int i = 0; i < 400; ++i) link.Ready(At(8ms), 0, 3000);
  link.set_worker(2);
  for (uint64_t tag = 1; tag <= 7; ++tag) {
    link.Submit(At(9ms), {3000});
    link.Ready(At(9ms), tag, 3000);
    link.Receive(At(9ms), tag, 3000);
    link.Finish(At(9ms), tag);
  }
  link.set_worker(1);
  EXPECT_FALSE(link.load().slow);
  link.Receive(At(16ms), 0, 1000);
  EXPECT_TRUE(link.load().slow);
}

}  // namespace
}  // namespace sluice
