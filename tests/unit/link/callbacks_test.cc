#include "lib/link/callbacks.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <prometheus/registry.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/link/link_loop.h"
#include "tests/notification.h"
#include "tests/unit/net/link_thread.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using When = Callbacks::When;

// An executor whose time the test moves. The thread of the test is the link's thread.
class ManualExecutor final : public Executor {
 public:
  void Turn(TimePoint::duration pause, const std::function<void()>& task) {
    now_ += pause;
    task();
    end_of_turn_();
  }
  TimePoint timer() const { return timer_; }

  TimePoint Now() const override { return now_; }
  void Post(std::function<void()> /*task*/) override {}
  void SetEndOfTurn(std::function<void()> task) override { end_of_turn_ = std::move(task); }
  void SetTimer(TimePoint time, std::function<void()> /*task*/) override { timer_ = time; }
  double Random() override { return 0; }
  std::shared_ptr<void> Resolve(const std::string& /*target*/, OnResolved /*on_resolved*/) override { return nullptr; }
  std::unique_ptr<StreamSocket> Connect(const WorkerAddress& /*address*/, const ConnectOptions& /*options*/,
                                        StreamSocketEvents& /*events*/) override {
    return nullptr;
  }

 private:
  TimePoint now_ = TimePoint() + std::chrono::hours(1);
  TimePoint timer_ = TimePoint::max();
  std::function<void()> end_of_turn_;
};

class CallbackThreadsTest : public ::testing::Test {
 protected:
  void Run(When when, std::string name) {
    callbacks_.Run(
        this, [this, name = std::move(name)] { log_.Add(name); }, when);
  }

  ManualExecutor executor_;
  prometheus::Registry registry_;
  LinkMetrics metrics_{registry_};
  LinkLoop loop_{executor_, {.policy = SchedulePolicy::kUnscheduled}, metrics_};
  testing::EventLog log_;
  CallbackThreads callbacks_{loop_};
};

TEST_F(CallbackThreadsTest, GetsWhatIsWaitedForAtTheEndOfTheTurn) {
  executor_.Turn({}, [&] {
    Run(When::kThisTurn, "first");
    Run(When::kThisTurn, "second");
  });
  EXPECT_THAT(log_.Await(2), ElementsAre("first", "second"));
}

TEST_F(CallbackThreadsTest, GetsTheRestAlongWithIt) {
  executor_.Turn({}, [&] { Run(When::kSoon, "first"); });
  EXPECT_EQ(executor_.timer(), executor_.Now() + CallbackThreads::kCollectTime) << "it does not wait for ever";
  executor_.Turn({}, [&] { Run(When::kThisTurn, "second"); });
  EXPECT_THAT(log_.Await(2), ElementsAre("first", "second"));
  EXPECT_EQ(executor_.timer(), TimePoint::max());
}

TEST_F(CallbackThreadsTest, GetsTheRestWhenTheTimeIsUp) {
  executor_.Turn({}, [&] { Run(When::kSoon, "first"); });
  executor_.Turn(CallbackThreads::kCollectTime / 2, [&] { Run(When::kSoon, "second"); });
  executor_.Turn(CallbackThreads::kCollectTime / 2, [] {});
  EXPECT_THAT(log_.Await(2), ElementsAre("first", "second"));
  EXPECT_EQ(executor_.timer(), TimePoint::max());
  executor_.Turn({}, [&] { Run(When::kSoon, "third"); });
  EXPECT_EQ(executor_.timer(), executor_.Now() + CallbackThreads::kCollectTime) << "its own time, not the first's";
  executor_.Turn(CallbackThreads::kCollectTime, [] {});
  EXPECT_THAT(log_.Await(3), ElementsAre("first", "second", "third"));
}

TEST_F(CallbackThreadsTest, GetsTheRestWhenItIsMuch) {
  for (size_t i = 0; i < CallbackThreads::kCollectAtMost; ++i) {
    EXPECT_THAT(log_.events(), IsEmpty());
    executor_.Turn({}, [&] { Run(When::kSoon, "one"); });
  }
  EXPECT_EQ(log_.Await(CallbackThreads::kCollectAtMost).size(), CallbackThreads::kCollectAtMost);
}

// Callbacks behind a slow callback do not wait for the other callbacks of its owner.
TEST_F(CallbackThreadsTest, ASlowOwnerDoesNotHoldUpTheOthers) {
  testing::Notification come;
  executor_.Turn({}, [&] {
    callbacks_.Run(
        &executor_,
        [&] {
          const auto began = std::chrono::steady_clock::now();
          EXPECT_TRUE(come.Await());
          while (std::chrono::steady_clock::now() - began <= CallbackQueue::kTurn) continue;
          log_.Add("slow");
        },
        When::kThisTurn);
    callbacks_.Run(
        &executor_, [&] { log_.Add("slow too"); }, When::kThisTurn);
  });
  executor_.Turn({}, [&] { Run(When::kThisTurn, "quick"); });
  come.Notify();
  EXPECT_THAT(log_.Await(3), ElementsAre("slow", "quick", "slow too"));
}

TEST_F(CallbackThreadsTest, AnOwnerThatWaitsDoesNotHoldUpTheOthersOnAnotherThread) {
  CallbackThreads callbacks(loop_, 2);
  testing::Notification go_on;
  executor_.Turn({}, [&] {
    callbacks.Run(
        &executor_,
        [&] {
          EXPECT_TRUE(go_on.Await());
          log_.Add("slow");
        },
        When::kThisTurn);
    callbacks.Run(
        &executor_, [&] { log_.Add("slow too"); }, When::kThisTurn);
  });
  for (const char* name : {"quick", "quick too"}) {
    executor_.Turn({}, [&] {
      callbacks.Run(
          this, [&, name] { log_.Add(name); }, When::kThisTurn);
    });
  }
  EXPECT_THAT(log_.Await(2), ElementsAre("quick", "quick too"));
  go_on.Notify();
  EXPECT_THAT(log_.Await(4), ElementsAre("quick", "quick too", "slow", "slow too")) << "an owner's never overlap";
}

TEST_F(CallbackThreadsTest, TheDestructorRunsWhatIsLeft) {
  testing::Notification go_on;
  {
    CallbackThreads callbacks(loop_, 2);
    executor_.Turn({}, [&] {
      for (const void* owner : {static_cast<const void*>(&loop_), static_cast<const void*>(&log_)}) {
        callbacks.Run(
            owner, [&] { EXPECT_TRUE(go_on.Await()); }, When::kThisTurn);
        for (int i = 0; i < 10; ++i) {
          callbacks.Run(
              owner, [&] { log_.Add("left"); }, When::kThisTurn);
        }
      }
    });
    go_on.Notify();
  }
  EXPECT_EQ(log_.events().size(), 20u);
}

}  // namespace
}  // namespace sluice
