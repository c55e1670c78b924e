#include "lib/link/flush_queue.h"

#include <deque>
#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class FlushQueueTest : public ::testing::Test {
 protected:
  struct Writer final : Flushable {
    void Flush() override { flush(); }
    std::function<void()> flush;
  };

  // Adds a connection to the queue; it records its number when it is flushed.
  Writer& Add() {
    const size_t number = writers_.size();
    Writer& writer = writers_.emplace_back();
    writer.flush = [this, number] { flushed_.push_back(number); };
    queue_.FlushLater(writer);
    return writer;
  }
  void Add(int writers) {
    for (int i = 0; i < writers; ++i) Add();
  }

  FlushQueue queue_;
  std::deque<Writer> writers_;
  std::vector<size_t> flushed_;
};

TEST_F(FlushQueueTest, ATurnFlushesEachConnectionOnce) {
  Add(3);
  EXPECT_THAT(flushed_, IsEmpty());
  EXPECT_FALSE(queue_.empty());
  queue_.FlushAll();
  EXPECT_THAT(flushed_, ElementsAre(0, 1, 2));
  EXPECT_TRUE(queue_.empty());
  queue_.FlushAll();
  EXPECT_THAT(flushed_, ElementsAre(0, 1, 2));
}

TEST_F(FlushQueueTest, ADestroyedConnectionIsNotFlushed) {
  Add(2);
  queue_.Forget(Add());
  Add();
  queue_.FlushAll();
  EXPECT_THAT(flushed_, ElementsAre(0, 1, 3));
}

TEST_F(FlushQueueTest, FewConnectionsWaitForTheEndOfTheTurn) {
  Add(7);
  queue_.FlushEarly();
  EXPECT_THAT(flushed_, IsEmpty());
  Add();
  queue_.FlushEarly();
  EXPECT_EQ(flushed_.size(), 8U);
  // Those that were flushed do not count.
  Add(7);
  queue_.FlushEarly();
  EXPECT_EQ(flushed_.size(), 8U);
  queue_.FlushAll();
  EXPECT_EQ(flushed_.size(), 15U);
}

TEST_F(FlushQueueTest, AFlushMayQueueOthersAndFlushThem) {
  Add().flush = [this] {
    flushed_.push_back(0);
    Add(8);
    queue_.FlushEarly();
    EXPECT_EQ(flushed_.size(), 9U);
    Add();
  };
  queue_.FlushAll();
  EXPECT_THAT(flushed_, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_TRUE(queue_.empty());
}

}  // namespace
}  // namespace sluice
