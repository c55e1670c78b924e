#include "lib/net/io_thread.h"

#include <memory>
#include <thread>

#include <boost/asio/post.hpp>
#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"

namespace sluice {
namespace {

TEST(IoThreadTest, RunsHandlersOnOneOtherThread) {
  IoThread io_thread;
  std::thread::id first;
  std::thread::id second;
  absl::Notification done;
  boost::asio::post(io_thread.context(), [&] { first = std::this_thread::get_id(); });
  boost::asio::post(io_thread.context(), [&] {
    second = std::this_thread::get_id();
    done.Notify();
  });
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(10)));
  EXPECT_EQ(first, second);
  EXPECT_NE(first, std::this_thread::get_id());
}

TEST(IoThreadTest, DestroysTheHandlersThatHaveNotRun) {
  const auto held = std::make_shared<int>(0);
  {
    IoThread io_thread;
    absl::Notification running;
    absl::Notification go_on;
    boost::asio::post(io_thread.context(), [&] {
      running.Notify();
      go_on.WaitForNotification();
      io_thread.context().stop();
    });
    boost::asio::post(io_thread.context(), [held] { ++*held; });
    ASSERT_TRUE(running.WaitForNotificationWithTimeout(absl::Seconds(10)));
    go_on.Notify();
  }
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(*held, 0);
}

}  // namespace
}  // namespace sluice
