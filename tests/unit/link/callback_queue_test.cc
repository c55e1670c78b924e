#include "lib/link/callback_queue.h"

#include <chrono>
#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

class CallbackQueueTest : public ::testing::Test {
 protected:
  void Push(char owner, CallbackQueue::Duration takes) {
    queue_.Push({&owners_.at(owner), [this, owner, takes] {
                   ran_ += owner;
                   now_ += takes;
                   used_[owner] += takes;
                   --waiting_[owner];
                 }});
    ++waiting_[owner];
  }
  void RunOne() {
    const CallbackQueue::Duration before = now_;
    const CallbackQueue::Callback callback = queue_.Pop();
    callback.run();
    queue_.Took(callback.owner, now_ - before);
  }
  void RunAll() {
    while (!queue_.empty()) RunOne();
  }
  // Runs callbacks of owners that always have a waiting callback.
  void RunFor(CallbackQueue::Duration time, const std::map<char, CallbackQueue::Duration>& takes) {
    const CallbackQueue::Duration end = now_ + time;
    while (now_ < end) {
      for (const auto& [owner, each] : takes) {
        if (waiting_[owner] == 0) Push(owner, each);
      }
      RunOne();
    }
  }

  CallbackQueue queue_;
  std::map<char, int> owners_ = {{'a', 0}, {'b', 0}, {'c', 0}};  // only their addresses matter
  std::map<char, int> waiting_;
  std::map<char, CallbackQueue::Duration> used_;
  CallbackQueue::Duration now_{0};
  std::string ran_;
};

TEST_F(CallbackQueueTest, ThoseOfAnOwnerRunInTheirOrder) {
  std::string ran;
  for (const char name : {'1', '2', '3'}) queue_.Push({&owners_.at('a'), [&ran, name] { ran += name; }});
  RunAll();
  EXPECT_EQ(ran, "123");
}

TEST_F(CallbackQueueTest, ThoseThatTakeNoTimeRunAsTheirOwnersCame) {
  for (const char owner : {'a', 'b', 'a', 'c', 'b'}) Push(owner, {});
  RunAll();
  EXPECT_EQ(ran_, "aabbc");
}

TEST_F(CallbackQueueTest, AnOwnerGoesOnForATurn) {
  for (int i = 0; i < 4; ++i) Push('a', CallbackQueue::kTurn / 2);
  Push('b', CallbackQueue::kTurn / 2);
  RunAll();
  EXPECT_EQ(ran_, "aabaa");
}

TEST_F(CallbackQueueTest, ASlowCallbackIsPaidForByTurnsOfTheOthers) {
  Push('a', 5 * CallbackQueue::kTurn);
  for (int i = 0; i < 10; ++i) Push('b', CallbackQueue::kTurn);
  Push('a', {});
  RunAll();
  EXPECT_EQ(ran_,
            "abbbbba"
            "bbbbb");
}

TEST_F(CallbackQueueTest, OwnersThatAlwaysWaitGetTheSameTime) {
  RunFor(seconds(100), {{'a', milliseconds(20)}, {'b', microseconds(100)}, {'c', milliseconds(3)}});
  for (const auto& [owner, used] : used_) {
    EXPECT_GE(used, milliseconds(33'000)) << owner;
    EXPECT_LE(used, milliseconds(33'700)) << owner;
  }
}

// The debt remains while its owner has no callbacks, as long as other owners have some.
TEST_F(CallbackQueueTest, AnOwnerThatComesBackIsStillInDebt) {
  Push('a', 5 * CallbackQueue::kTurn);
  for (int i = 0; i < 10; ++i) Push('b', CallbackQueue::kTurn);
  RunOne();
  RunOne();
  Push('a', {});
  RunAll();
  EXPECT_EQ(ran_,
            "abbbbba"
            "bbbbb");
}

TEST_F(CallbackQueueTest, WithoutOthersADebtIsForgotten) {
  Push('a', seconds(1));
  RunAll();
  for (const char owner : {'a', 'b'}) Push(owner, {});
  RunAll();
  EXPECT_EQ(ran_, "aab");
}

TEST_F(CallbackQueueTest, ADebtIsBounded) {
  Push('a', seconds(1000));
  for (int i = 0; i < 200; ++i) Push('b', CallbackQueue::kTurn);
  Push('a', {});
  RunAll();
  EXPECT_EQ(ran_.find_last_of('a'), 102u);
}

TEST_F(CallbackQueueTest, OwnersThatComeAndGoDoNotStopOneInDebt) {
  Push('a', 50 * CallbackQueue::kTurn);
  Push('a', {});
  for (int i = 0; i < 1000 && ran_.find_last_of('a') < 1; ++i)
    RunFor(CallbackQueue::kTurn, {{i % 2 == 0 ? 'b' : 'c', CallbackQueue::kTurn}});
  EXPECT_LE(ran_.size(), 110u);
}

TEST_F(CallbackQueueTest, ThoseOfAnOwnerDoNotOverlap) {
  for (const char owner : {'a', 'a', 'b'}) Push(owner, {});
  const CallbackQueue::Callback first = queue_.Pop();
  EXPECT_EQ(first.owner, &owners_.at('a'));
  Push('a', {});
  const CallbackQueue::Callback other = queue_.Pop();
  EXPECT_EQ(other.owner, &owners_.at('b'));
  EXPECT_TRUE(queue_.empty());
  queue_.Took(first.owner, {});
  EXPECT_FALSE(queue_.empty());
  EXPECT_EQ(queue_.Pop().owner, first.owner);
  EXPECT_TRUE(queue_.empty());
  queue_.Took(other.owner, {});
  EXPECT_TRUE(queue_.empty());
  queue_.Took(first.owner, {});
  RunAll();
  EXPECT_EQ(ran_, "a");
}

TEST_F(CallbackQueueTest, ADebtStaysWhileOthersRun) {
  Push('a', {});
  Push('b', {});
  const CallbackQueue::Callback slow = queue_.Pop();
  const CallbackQueue::Callback other = queue_.Pop();
  queue_.Took(slow.owner, 5 * CallbackQueue::kTurn);
  Push('a', {});
  for (int i = 0; i < 10; ++i) Push('b', CallbackQueue::kTurn);
  queue_.Took(other.owner, {});
  RunAll();
  EXPECT_EQ(ran_,
            "bbbbbba"
            "bbbb");
}

}  // namespace
}  // namespace sluice
