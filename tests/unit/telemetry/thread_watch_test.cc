#include "lib/telemetry/thread_watch.h"

#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/has_code.h"

namespace sluice {
namespace {

using std::chrono::seconds;

class ThreadWatchTest : public ::testing::Test {
 protected:
  // The tasks that a thread has not run.
  using Tasks = std::vector<std::function<void()>>;
  static ThreadWatch::Post PostTo(Tasks& tasks) {
    return [&tasks](std::function<void()> task) { tasks.push_back(std::move(task)); };
  }
  static void Run(Tasks& tasks) {
    for (const auto& task : std::exchange(tasks, {})) task();
  }

  const TimePoint start_ = TimePoint() + std::chrono::hours(1);
};

TEST_F(ThreadWatchTest, WithoutThreadsAllIsWell) {
  ThreadWatch watch;
  EXPECT_TRUE(watch.Look(start_).ok());
}

TEST_F(ThreadWatchTest, AThreadThatRunsItsTasksIsAlive) {
  Tasks tasks;
  ThreadWatch watch;
  watch.Add("thread of the link", PostTo(tasks));
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(watch.Look(start_ + seconds(10 * i)).ok()) << i;
    EXPECT_EQ(tasks.size(), 1u) << i;
    Run(tasks);
  }
}

TEST_F(ThreadWatchTest, AThreadThatHangsIsNamedUntilItRunsAgain) {
  Tasks tasks;
  Tasks other_tasks;
  ThreadWatch watch;
  watch.Add("accepting thread", PostTo(other_tasks));
  watch.Add("thread of the link", PostTo(tasks));
  EXPECT_TRUE(watch.Look(start_).ok());
  Run(other_tasks);
  EXPECT_TRUE(watch.Look(start_ + seconds(5)).ok());
  Run(other_tasks);
  const absl::Status hangs = watch.Look(start_ + seconds(12));
  EXPECT_EQ(hangs, absl::UnavailableError("the thread of the link has run no task for 12s; it hangs"));
  EXPECT_EQ(tasks.size(), 1u) << "one task is enough";
  Run(tasks);
  EXPECT_TRUE(watch.Look(start_ + seconds(13)).ok());
}

// The first look may be the only one for a long time.
TEST_F(ThreadWatchTest, AThreadThatRanLongAgoIsAlive) {
  Tasks tasks;
  ThreadWatch watch;
  watch.Add("thread of the link", PostTo(tasks));
  EXPECT_TRUE(watch.Look(start_).ok());
  Run(tasks);
  EXPECT_TRUE(watch.Look(start_ + std::chrono::hours(1)).ok());
}

TEST_F(ThreadWatchTest, ATaskMayOutliveTheWatch) {
  Tasks tasks;
  {
    ThreadWatch watch;
    watch.Add("thread of the link", PostTo(tasks));
    EXPECT_TRUE(watch.Look(start_).ok());
  }
  Run(tasks);
}

}  // namespace
}  // namespace sluice
