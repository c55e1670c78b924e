// Claims stop counting only if their workers do not keep up.
#include <algorithm>
#include <chrono>
#include <random>

#include "tests/random_seed.h"
#include "tests/unit/link/callback_memory_fixture.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using CallbackMemoryAgingTest = testing::CallbackMemoryTest;

TEST_F(CallbackMemoryAgingTest, AWorkerThatHangsHoldsBackTheOthersOnce) {
  const auto account = NewAccount();
  Claim& hung = NewClaim(account);
  ASSERT_TRUE(hung.Take(500));
  EXPECT_FALSE(NewClaim(account).Take(500));
  EndTurn(kPatience - milliseconds(1));
  EXPECT_THAT(had_room_, IsEmpty());
  EndTurn(milliseconds(1));
  EXPECT_THAT(had_room_, ElementsAre(1));
  EXPECT_TRUE(hung.Take(500)) << "it may come still";
  EXPECT_EQ(memory_.counted_bytes(), 500);
  hung.Release();
  EXPECT_EQ(memory_.counted_bytes(), 500);
}

TEST_F(CallbackMemoryAgingTest, AWorkerThatHangsInALargeMessageHoldsBackTheOthersOnce) {
  const auto account = NewAccount();
  ASSERT_TRUE(NewClaim(account).Take(50'000));
  EXPECT_FALSE(NewClaim(account).Take(50'000));
  EXPECT_FALSE(NewClaim(NewAccount()).Take(50'000));
  for (int i = 0; i < 2; ++i) EndTurn(kPatience);
  EXPECT_THAT(had_room_, ElementsAre(1, 2));
}

// The link is slow, not the worker.
TEST_F(CallbackMemoryAgingTest, AMessageThatTheLinkHoldsBackCountsForever) {
  const auto account = NewAccount();
  Claim& held = NewClaim(account);
  held.OnHeld(true);
  ASSERT_TRUE(held.Take(500));
  EXPECT_FALSE(NewClaim(account).Take(500));
  for (int i = 0; i < 100; ++i) EndTurn(kPatience);
  EXPECT_THAT(had_room_, IsEmpty());
  held.OnHeld(false);
  EndTurn(kPatience - milliseconds(1));
  held.OnHeld(true);
  for (int i = 0; i < 100; ++i) EndTurn(kPatience);
  EXPECT_THAT(had_room_, IsEmpty());
  held.OnHeld(false);
  EndTurn(milliseconds(1));
  EXPECT_THAT(had_room_, ElementsAre(1)) << "the time before counts";
}

TEST_F(CallbackMemoryAgingTest, AMessageThatKeepsUpCounts) {
  const auto account = NewAccount();
  Claim& comes = NewClaim(account);
  ASSERT_TRUE(comes.Take(500));
  EXPECT_FALSE(NewClaim(account).Take(500));
  for (int i = 0; i < 49; ++i) {
    comes.OnProgress(10);
    EndTurn(10 * kByteTime);
  }
  EndTurn(kPatience - milliseconds(1));
  EXPECT_THAT(had_room_, IsEmpty());
  EndTurn(milliseconds(1));
  EXPECT_THAT(had_room_, ElementsAre(1)) << "it hangs";
  EXPECT_EQ(memory_.counted_bytes(), 500);
}

// Bytes arrive all the time.
TEST_F(CallbackMemoryAgingTest, AWorkerThatIsSlowHoldsBackTheOthersOnce) {
  const auto account = NewAccount();
  Claim& slow = NewClaim(account);
  Claim& large = NewClaim(NewAccount());
  ASSERT_TRUE(slow.Take(500));
  ASSERT_TRUE(large.Take(50'000));
  EXPECT_FALSE(NewClaim(account).Take(500));
  EXPECT_FALSE(NewClaim(NewAccount()).Take(50'000));
  const auto trickle = [&](TimePoint::duration time) {
    for (const TimePoint end = now_ + time; now_ < end;) {
      slow.OnProgress(1);
      large.OnProgress(1);
      EndTurn(10 * kByteTime);
    }
  };
  trickle(kPatience);
  EXPECT_THAT(had_room_, IsEmpty());
  trickle(kPatience / 8);
  EXPECT_THAT(had_room_, ElementsAre(2, 3));
  trickle(100 * kPatience);
  EXPECT_EQ(memory_.counted_bytes(), 500) << "they are given up";
}

// A message of n bytes may take kPatience + n * kByteTime.
TEST_F(CallbackMemoryAgingTest, AMessageHoldsItsRoomForABoundedTimeHoweverItComes) {
  constexpr int kBytes = 400;
  constexpr milliseconds kMaxPause(50);
  const RandomSeed seed = TakeRandomSeed();
  std::mt19937_64 random(seed.value);
  for (int life = 0; life < 300; ++life) {
    const auto account = NewAccount();
    Claim claim(account, [] {});
    Claim other(account, [] {});
    ASSERT_TRUE(claim.Take(kBytes));
    int left_bytes = kBytes;
    bool held = false;
    milliseconds may_send(0);
    milliseconds allowed = kPatience;
    while (!other.Take(kBytes)) {
      if (random() % 3 == 0) claim.OnHeld(held = !held);
      const int bytes = held ? 0 : std::min<int>(left_bytes, static_cast<int>(random() % 60));
      claim.OnProgress(static_cast<size_t>(bytes));
      left_bytes -= bytes;
      allowed += bytes * kByteTime;
      const milliseconds pause(random() % kMaxPause.count());
      EndTurn(pause);
      if (!held) may_send += pause;
      ASSERT_LE(may_send, kPatience + kBytes * kByteTime + kMaxPause) << "SLUICE_SEED=" << seed.value;
    }
    EXPECT_GE(may_send, allowed) << "SLUICE_SEED=" << seed.value;
  }
}

// The messages are held by the application, and not by a worker.
TEST_F(CallbackMemoryAgingTest, MessagesThatWaitForCallbacksCountForever) {
  const auto account = NewAccount();
  account->Hold(500);
  EXPECT_FALSE(NewClaim(account).Take(1));
  for (int i = 0; i < 100; ++i) EndTurn(kPatience);
  EXPECT_THAT(had_room_, IsEmpty());
}

}  // namespace
}  // namespace sluice
