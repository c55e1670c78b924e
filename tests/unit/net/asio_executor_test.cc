#include "lib/net/asio_executor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <boost/asio/post.hpp>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/net/link_thread.h"

namespace sluice {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using testing::EventLog;
using ::testing::Ge;
using testing::kPatience;
using testing::RunOn;
using ::testing::SizeIs;

TEST(AsioExecutorTest, RunsPostedTasksInTheirOrderOnOneThread) {
  std::vector<int> ran;
  std::thread::id thread;
  AsioExecutor executor;
  RunOn(executor, [&] { thread = std::this_thread::get_id(); });
  bool same_thread = true;
  for (int i = 0; i < 1000; ++i) {
    executor.Post([&, i] {
      ran.push_back(i);
      same_thread = same_thread && std::this_thread::get_id() == thread;
    });
  }
  RunOn(executor, [] {});
  EXPECT_THAT(ran, SizeIs(1000));
  EXPECT_TRUE(std::is_sorted(ran.begin(), ran.end()));
  EXPECT_TRUE(same_thread);
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST(AsioExecutorTest, KeepsTheOrderOfEachOfManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kTasks = 5000;
  std::vector<std::vector<int>> ran(kThreads);
  AsioExecutor executor;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kTasks; ++i) executor.Post([&ran, thread, i] { ran[thread].push_back(i); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  RunOn(executor, [] {});
  for (const std::vector<int>& of_thread : ran) {
    EXPECT_THAT(of_thread, SizeIs(kTasks));
    EXPECT_TRUE(std::is_sorted(of_thread.begin(), of_thread.end()));
  }
}

TEST(AsioExecutorTest, ATaskThatPostsRunsItsTaskLater) {
  EventLog log;
  AsioExecutor executor;
  executor.Post([&] {
    executor.Post([&] { log.Add("posted"); });
    log.Add("posts");
  });
  EXPECT_THAT(log.Await(2), ElementsAre("posts", "posted"));
}

TEST(AsioExecutorTest, ATurnEndsOnceForAllThatWasReady) {
  EventLog log;
  AsioExecutor executor;
  RunOn(executor, [&] {
    executor.SetEndOfTurn([&] { log.Add("end"); });
    // Posts a batch: all these tasks are ready when the next turn of the loop begins.
    for (int i = 0; i < 3; ++i) executor.Post([&, i] { log.Add(absl::StrCat("posted ", i)); });
    boost::asio::post(executor.context(), [&] { log.Add("handler"); });
  });
  std::vector<std::string> events = log.Await(5);
  EXPECT_THAT(events, ElementsAre("posted 0", "posted 1", "posted 2", "handler", "end"));
}

TEST(AsioExecutorTest, WorkThatTheEndOfATurnPostsIsATurnOfItsOwn) {
  EventLog log;
  int ends = 0;
  AsioExecutor executor;
  RunOn(executor, [&] {
    executor.SetEndOfTurn([&] {
      log.Add("end");
      if (++ends <= 2) executor.Post([&] { log.Add("work"); });
    });
  });
  EXPECT_THAT(log.Await(5), ElementsAre("end", "work", "end", "work", "end"));
}

TEST(AsioExecutorTest, HandshakesWithWorkersGoBeforeThoseOfClients) {
  EventLog log;
  AsioExecutor executor;
  executor.Post([&] {
    for (int i = 0; i < 2; ++i) executor.QueueClientHandshake([&] { log.Add("client"); });
    for (int i = 0; i < 2; ++i) executor.QueueWorkerHandshake([&] { log.Add("worker"); });
  });
  EXPECT_THAT(log.Await(4), ElementsAre("worker", "worker", "client", "client"));
}

TEST(AsioExecutorTest, AChainOfTasksDoesNotKeepTheTurnFromItsEnd) {
  EventLog log;
  bool stop = false;
  AsioExecutor executor;
  std::function<void()> again = [&] {
    if (!stop) executor.Post(again);
  };
  RunOn(executor, [&] {
    executor.SetEndOfTurn([&] {
      stop = true;
      log.Add("end");
    });
    again();
  });
  EXPECT_THAT(log.Await(1), SizeIs(Ge(1U)));
  RunOn(executor, [] {});
}

// Responses that arrive packet by packet behave like this. Without an end of the turn, its output would wait until
// nothing is in flight.
TEST(AsioExecutorTest, HandlersThatKeepComingDoNotKeepTheTurnFromItsEnd) {
  constexpr int kHandlers = 100;
  EventLog log;
  int ended = 0;
  std::function<void(int)> handle;
  AsioExecutor executor;
  handle = [&](int left) {
    if (left == 0) return log.Add(ended >= kHandlers / 2 ? "a turn for each" : absl::StrCat(ended, " turns for all"));
    boost::asio::post(executor.context(), [&handle, left] { handle(left - 1); });
  };
  RunOn(executor, [&] {
    executor.SetEndOfTurn([&] { ++ended; });
    handle(kHandlers);
  });
  EXPECT_THAT(log.Await(1), ElementsAre("a turn for each"));
}

TEST(AsioExecutorTest, WhatCanWaitComesAfterTheOutputOfItsTurn) {
  EventLog log;
  uint64_t first = 0;
  AsioExecutor executor;
  RunOn(executor, [&] {
    executor.SetEndOfTurn([&] { log.Add("output"); });
    first = executor.turn();
    executor.AfterOutput([&] { log.Add(absl::StrCat("turn ", executor.turn() - first)); });
    log.Add("task");
  });
  EXPECT_THAT(log.Await(3), ElementsAre("task", "output", "turn 0"));
}

TEST(AsioExecutorTest, NextTurnComesAfterTheEndOfThisOne) {
  EventLog log;
  uint64_t first = 0;
  AsioExecutor executor;
  RunOn(executor, [&] {
    executor.SetEndOfTurn([&] { log.Add("end"); });
    first = executor.turn();
    executor.NextTurn([&] { log.Add(absl::StrCat("turn ", executor.turn() - first)); });
  });
  EXPECT_THAT(log.Await(3), ElementsAre("end", "turn 1", "end"));
}

TEST(AsioExecutorTest, CallsATimerOnceAndNotBeforeItsTime) {
  EventLog log;
  TimePoint due;
  TimePoint called;
  AsioExecutor executor;
  RunOn(executor, [&] {
    due = executor.Now() + milliseconds(20);
    executor.SetTimer(due, [&] {
      called = executor.Now();
      log.Add("timer");
    });
  });
  EXPECT_THAT(log.Await(1), ElementsAre("timer"));
  RunOn(executor, [&] { EXPECT_GE(called, due); });
  EXPECT_THAT(log.events(), ElementsAre("timer"));
}

TEST(AsioExecutorTest, ATimeThatIsOverIsCalledSoonButNotFromWithinTheCall) {
  EventLog log;
  AsioExecutor executor;
  RunOn(executor, [&] {
    executor.SetTimer(executor.Now() - hours(1), [&] { log.Add("timer"); });
    log.Add("set");
  });
  EXPECT_THAT(log.Await(2), ElementsAre("set", "timer"));
}

TEST(AsioExecutorTest, AnEarlierTimeTakesThePlaceOfALaterOne) {
  EventLog log;
  AsioExecutor executor;
  RunOn(executor, [&] {
    executor.SetTimer(executor.Now() + hours(1), [&] { log.Add("later"); });
    executor.SetTimer(executor.Now() + milliseconds(1), [&] { log.Add("earlier"); });
  });
  EXPECT_THAT(log.Await(1), ElementsAre("earlier"));
}

TEST(AsioExecutorTest, ALaterTimeTakesThePlaceOfAnEarlierOne) {
  EventLog log;
  TimePoint due;
  AsioExecutor executor;
  RunOn(executor, [&] {
    due = executor.Now() + milliseconds(40);
    executor.SetTimer(due - milliseconds(35), [&] { log.Add("earlier"); });
    executor.SetTimer(due, [&] { log.Add(executor.Now() >= due ? "later" : "too early"); });
  });
  EXPECT_THAT(log.Await(1), ElementsAre("later"));
}

TEST(AsioExecutorTest, NeverMeansThatNothingIsCalled) {
  EventLog log;
  AsioExecutor executor;
  RunOn(executor, [&] {
    executor.SetTimer(executor.Now() + milliseconds(2), [&] { log.Add("never"); });
    executor.SetTimer(TimePoint::max(), [&] { log.Add("at the end of time"); });
  });
  // Use Asio's own timer, because SetTimer would replace the timer under test.
  boost::asio::steady_timer later(executor.context(), milliseconds(10));
  later.async_wait([&](const boost::system::error_code&) { log.Add("later"); });
  EXPECT_THAT(log.Await(1), ElementsAre("later"));
}

TEST(AsioExecutorTest, ATimerMaySetTheNextOne) {
  EventLog log;
  AsioExecutor executor;
  std::function<void()> tick = [&] {
    log.Add("tick");
    if (log.events().size() < 5) executor.SetTimer(executor.Now() + microseconds(100), tick);
  };
  RunOn(executor, [&] { executor.SetTimer(executor.Now(), tick); });
  EXPECT_THAT(log.Await(5), SizeIs(5));
}

TEST(AsioExecutorTest, TellsHowLateATimerIsBeforeItsTaskRuns) {
  EventLog log;
  std::chrono::nanoseconds lateness{-1};
  AsioExecutor executor({.on_timer_lateness = [&](std::chrono::nanoseconds late) {
    lateness = late;
    log.Add("late");
  }});
  RunOn(executor, [&] { executor.SetTimer(executor.Now() - milliseconds(50), [&] { log.Add("timer"); }); });
  EXPECT_THAT(log.Await(2), ElementsAre("late", "timer"));
  RunOn(executor, [&] {
    EXPECT_GE(lateness, milliseconds(50));
    EXPECT_LT(lateness, absl::ToChronoNanoseconds(kPatience));
  });
}

TEST(AsioExecutorTest, RandomIsUniformFromZeroToOne) {
  AsioExecutor executor;
  RunOn(executor, [&] {
    double sum = 0;
    for (int i = 0; i < 10000; ++i) {
      const double random = executor.Random();
      ASSERT_GE(random, 0);
      ASSERT_LE(random, 1);
      sum += random;
    }
    EXPECT_NEAR(sum / 10000, 0.5, 0.03);  // ten standard deviations
  });
}

TEST(AsioExecutorTest, TheDestructorDestroysWhatHasNotRunAndCallsNothing) {
  auto held = std::make_shared<int>(7);
  EventLog log;
  {
    AsioExecutor executor;
    RunOn(executor, [&] { executor.SetTimer(executor.Now() + hours(1), [held, &log] { log.Add("timer"); }); });
    executor.Stop();
    executor.Post([held, &log] { log.Add("posted"); });
    executor.Stop();
  }
  EXPECT_THAT(log.events(), SizeIs(0));
  EXPECT_EQ(held.use_count(), 1);
}

TEST(AsioExecutorTest, MayBeDestroyedWhileOthersStillRan) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> ran{0};
    std::vector<std::thread> threads;
    auto executor = std::make_unique<AsioExecutor>();
    for (int thread = 0; thread < 2; ++thread) {
      threads.emplace_back([&] {
        for (int i = 0; i < 100; ++i) executor->Post([&ran] { ++ran; });
      });
    }
    if (round % 2 == 0) executor->Stop();
    for (std::thread& thread : threads) thread.join();
    executor.reset();
    EXPECT_LE(ran, 200);
  }
}

}  // namespace
}  // namespace sluice
