#include "lib/cli/file_watch.h"

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include <boost/asio/post.hpp>
#include <gtest/gtest.h>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "lib/net/io_thread.h"
#include "tests/unit/cli/temp_file.h"

namespace sluice {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr absl::Duration kPeriod = absl::Milliseconds(5);

class FileWatchTest : public ::testing::Test {
 protected:
  void Watch(absl::Duration period = kPeriod) {
    watch_ = std::make_unique<FileWatch>(io_thread_.context(), path_, period, [this] {
      absl::MutexLock lock(&mutex_);
      ++changes_;
    });
  }

  bool AwaitChanges(int expected) {
    absl::MutexLock lock(&mutex_);
    const auto reached = [this, expected]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return changes_ >= expected; };
    return mutex_.AwaitWithTimeout(absl::Condition(&reached), kPatience) && changes_ == expected;
  }

  // Replaces the file in one step, as a program that rewrites a file does, and as Kubernetes does with the link to a
  // folder.
  void Replace(const std::string& text) {
    std::ofstream(path_ + ".new", std::ios::binary) << text;
    std::filesystem::rename(path_ + ".new", path_);
  }

  const std::string path_ = WriteTempFile("one");
  IoThread io_thread_;
  absl::Mutex mutex_;
  int changes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<FileWatch> watch_;
};

TEST_F(FileWatchTest, TellsOfTheFirstLookAndOfEachChangeOnce) {
  Watch();
  EXPECT_TRUE(AwaitChanges(1));
  Replace("two");
  EXPECT_TRUE(AwaitChanges(2));
  Replace("three");
  EXPECT_TRUE(AwaitChanges(3));
}

TEST_F(FileWatchTest, OnlyWhatIsInTheFileCounts) {
  Watch();
  EXPECT_TRUE(AwaitChanges(1));
  Replace("one");
  std::filesystem::last_write_time(path_, std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  Replace("two");
  EXPECT_TRUE(AwaitChanges(2)) << "the file that was the same was none";
}

TEST_F(FileWatchTest, FollowsALinkThatIsSwapped) {
  const std::string other = path_ + ".other";
  std::ofstream(other) << "two";
  const std::string target = path_ + ".target";
  std::filesystem::rename(path_, target);
  std::filesystem::create_symlink(target, path_);
  Watch();
  EXPECT_TRUE(AwaitChanges(1));
  std::filesystem::create_symlink(other, path_ + ".link");
  std::filesystem::rename(path_ + ".link", path_);
  EXPECT_TRUE(AwaitChanges(2));
  for (const std::string& file : {path_, other, target}) std::filesystem::remove(file);
}

TEST_F(FileWatchTest, AFileThatIsGoneIsAChangeAndSoIsOneThatIsBack) {
  Watch();
  EXPECT_TRUE(AwaitChanges(1));
  std::filesystem::remove(path_);
  EXPECT_TRUE(AwaitChanges(2));
  Replace("one");
  EXPECT_TRUE(AwaitChanges(3));
}

TEST_F(FileWatchTest, HangupLooksAtOnceWhateverThePeriodAndWhateverIsInTheFile) {
  Watch(absl::ZeroDuration());
  for (int hangups = 1; hangups <= 2; ++hangups) {
    absl::MutexLock lock(&mutex_);
    ASSERT_EQ(raise(SIGHUP), 0);
    const auto looked = [this, hangups]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return changes_ == hangups; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&looked), kPatience));
  }
}

TEST_F(FileWatchTest, GoesOnTheThreadOfItsContextToo) {
  Watch();
  EXPECT_TRUE(AwaitChanges(1));
  absl::Notification gone;
  boost::asio::post(io_thread_.context(), [&] {
    watch_.reset();
    gone.Notify();
  });
  EXPECT_TRUE(gone.WaitForNotificationWithTimeout(kPatience));
}

}  // namespace
}  // namespace sluice
