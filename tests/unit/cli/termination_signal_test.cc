#include "lib/cli/termination_signal.h"

#include <csignal>

#include <gtest/gtest.h>

#include "lib/net/io_thread.h"

namespace sluice {
namespace {

TEST(TerminationSignalTest, WaitReturnsTheSignal) {
  for (const int number : {SIGTERM, SIGINT}) {
    IoThread io_thread;
    TerminationSignal signal(io_thread.context());
    ASSERT_EQ(raise(number), 0);
    EXPECT_EQ(signal.Wait(), number);
  }
}

TEST(TerminationSignalTest, GoesAwayWithoutASignal) {
  IoThread io_thread;
  { TerminationSignal signal(io_thread.context()); }
  TerminationSignal again(io_thread.context());
  ASSERT_EQ(raise(SIGTERM), 0);
  EXPECT_EQ(again.Wait(), SIGTERM);
}

TEST(TerminationSignalDeathTest, ASecondSignalEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        IoThread io_thread;
        TerminationSignal signal(io_thread.context());
        raise(SIGTERM);
        signal.Wait();
        raise(SIGTERM);
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace sluice
