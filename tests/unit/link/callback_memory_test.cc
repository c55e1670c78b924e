#include "lib/link/callback_memory.h"

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tests/random_seed.h"
#include "tests/unit/link/callback_memory_fixture.h"

namespace sluice {
namespace {

using testing::CallbackMemoryTest;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(CallbackMemoryTest, AnAccountAloneTakesHalf) {
  const auto account = NewAccount();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(NewClaim(account).Take(100));
  EXPECT_FALSE(NewClaim(account).Take(1));
  EXPECT_EQ(memory_.counted_bytes(), 500);
  EXPECT_EQ(memory_.waiting_bytes(), 0);
}

TEST_F(CallbackMemoryTest, AClaimThatWaitsIsToldOnceThereIsRoom) {
  const auto account = NewAccount();
  Claim& first = NewClaim(account);
  Claim& second = NewClaim(account);
  ASSERT_TRUE(first.Take(400));
  ASSERT_FALSE(second.Take(300));
  EXPECT_FALSE(second.Take(300)) << "it waits already";
  Come(*account, first, 400);
  EXPECT_EQ(memory_.waiting_bytes(), 400);
  EndTurn();
  EXPECT_THAT(had_room_, IsEmpty()) << "the callbacks have to come first";
  account->Release(400);
  EXPECT_THAT(had_room_, IsEmpty()) << "not within a call";
  EndTurn();
  EXPECT_THAT(had_room_, ElementsAre(1));
  EXPECT_TRUE(second.Take(300)) << "it has them";
  EXPECT_EQ(memory_.counted_bytes(), 300);
}

TEST_F(CallbackMemoryTest, AClaimThatHasEnoughTakesNoMore) {
  const auto account = NewAccount();
  Claim& claim = NewClaim(account);
  ASSERT_TRUE(claim.Take(400));
  EXPECT_TRUE(claim.Take(300)) << "the rest of it";
  EXPECT_EQ(memory_.counted_bytes(), 400);
  EXPECT_TRUE(claim.Take(500)) << "more than was thought";
  EXPECT_EQ(memory_.counted_bytes(), 500);
  claim.Release();
  EXPECT_EQ(memory_.counted_bytes(), 0);
}

// Otherwise it would keep out other claims for which it waits itself.
TEST_F(CallbackMemoryTest, AClaimThatWaitsForMoreHoldsNothing) {
  const auto account = NewAccount();
  Claim& one = NewClaim(account);
  Claim& two = NewClaim(account);
  ASSERT_TRUE(one.Take(250));
  ASSERT_TRUE(two.Take(250));
  EXPECT_FALSE(one.Take(400));
  EXPECT_EQ(memory_.counted_bytes(), 250);
  EXPECT_FALSE(two.Take(400));
  EndTurn();
  EXPECT_THAT(had_room_, ElementsAre(0));
  one.Release();
  EndTurn();
  EXPECT_THAT(had_room_, ElementsAre(0, 1));
}

TEST_F(CallbackMemoryTest, AnAccountThatIsFullDoesNotStopAnother) {
  const auto slow = NewAccount();
  slow->Hold(500);
  EXPECT_FALSE(NewClaim(slow).Take(100));
  const auto quick = NewAccount();
  for (int i = 0; i < 100; ++i) {
    Claim& claim = NewClaim(quick);
    ASSERT_TRUE(claim.Take(200)) << i;
    Come(*quick, claim, 200);
    quick->Release(200);
    EndTurn();
  }
  EXPECT_THAT(had_room_, IsEmpty()) << "the slow one has had no callback";
}

TEST_F(CallbackMemoryTest, AccountsThatTakeAllTheyCanLeaveAShareForTheNext) {
  std::vector<std::shared_ptr<Account>> accounts;
  for (int64_t count = 1; count <= 9; ++count) {
    accounts.push_back(NewAccount());
    // Earlier accounts give up the excess over their share once it is merged.
    for (int round = 0; round < 2000; ++round) {
      for (const auto& account : accounts) {
        Claim claim(account, [] {});
        if (claim.Take(1)) account->Hold(1);
      }
      if (round < 1000) accounts[static_cast<size_t>(round % count)]->Release(1);
    }
    EXPECT_LE(memory_.counted_bytes(), kBound * count / (count + 1) + count);
  }
}

TEST_F(CallbackMemoryTest, TheFirstThatWaitsHoldsBackTheOthersOfItsAccount) {
  const auto account = NewAccount();
  Claim& before = NewClaim(account);
  ASSERT_TRUE(before.Take(300));
  EXPECT_FALSE(NewClaim(account).Take(400));
  EXPECT_FALSE(NewClaim(account).Take(10));
  before.Release();
  EndTurn();
  EXPECT_THAT(had_room_, ElementsAre(1, 2));
}

// Otherwise no later event would wake the claims behind it.
TEST_F(CallbackMemoryTest, AClaimThatNoLongerWaitsHoldsBackNoOther) {
  const auto account = NewAccount();
  account->Hold(300);
  EXPECT_FALSE(NewClaim(account).Take(400));
  EXPECT_FALSE(NewClaim(account).Take(100));
  claims_[0]->Release();
  EndTurn();
  EXPECT_THAT(had_room_, ElementsAre(1));
}

// The waiting account must not go alone, and its state does not change soon.
TEST_F(CallbackMemoryTest, AMessageGoesAloneBesideAnAccountThatWaitsForItsMerge) {
  const auto slow = NewAccount();
  slow->Hold(500);
  EXPECT_FALSE(NewClaim(slow).Take(100));
  EXPECT_FALSE(NewClaim(NewAccount()).Take(50'000)) << "it may not overtake within a call";
  EndTurn();
  EXPECT_THAT(had_room_, ElementsAre(1));
}

TEST_F(CallbackMemoryTest, AMessageThatIsLargerThanTheBoundGoesAlone) {
  const auto account = NewAccount();
  Claim& small = NewClaim(account);
  Claim& large = NewClaim(account);
  Claim& next = NewClaim(account);
  ASSERT_TRUE(small.Take(100));
  EXPECT_FALSE(large.Take(50'000));
  EXPECT_FALSE(next.Take(100));
  small.Release();
  EndTurn();
  EXPECT_THAT(had_room_, ElementsAre(1));
  Come(*account, large, 50'000);
  EndTurn();
  EXPECT_THAT(had_room_, ElementsAre(1)) << "it is the only one of its account";
  const auto other = NewAccount();
  EXPECT_TRUE(NewClaim(other).Take(500)) << "and does not count against the others";
  EXPECT_FALSE(NewClaim(NewAccount()).Take(50'000)) << "one at a time";
  account->Release(50'000);
  EndTurn();
  EXPECT_THAT(had_room_, ElementsAre(1, 2, 4));
}

TEST_F(CallbackMemoryTest, AccountsTakeTurnsWithLargeMessages) {
  std::vector<std::shared_ptr<Account>> accounts;
  for (int i = 0; i < 6; ++i) {
    if (i < 3) accounts.push_back(NewAccount());
    EXPECT_EQ(NewClaim(accounts[static_cast<size_t>(i % 3)]).Take(50'000), i == 0);
  }
  for (size_t i = 0; i < 6; ++i) {
    claims_[i]->Release();
    EndTurn();
  }
  EXPECT_THAT(had_room_, ElementsAre(1, 2, 3, 4, 5));
}

// With 500 of 1000 bytes free, an account may hold at most 250 bytes. A larger message therefore goes alone.
TEST_F(CallbackMemoryTest, AMessageThatOthersLeaveNoRoomForGoesAlone) {
  const auto slow = NewAccount();
  slow->Hold(500);
  EXPECT_TRUE(NewClaim(NewAccount()).Take(400));
}

TEST_F(CallbackMemoryTest, WhatCameUnaskedCounts) {
  const auto account = NewAccount();
  account->Hold(5000);
  EXPECT_FALSE(NewClaim(account).Take(1));
  account->Release(4999);
  EndTurn();
  EXPECT_THAT(had_room_, ElementsAre(0));
}

TEST_F(CallbackMemoryTest, AClaimMayEndWhileItWaits) {
  const auto account = NewAccount();
  const auto other = NewAccount();
  ASSERT_TRUE(NewClaim(account).Take(50'000));
  EXPECT_FALSE(NewClaim(account).Take(50'000));
  EXPECT_FALSE(NewClaim(other).Take(50'000));
  EXPECT_FALSE(NewClaim(other).Take(50'000));
  claims_[1].reset();
  claims_[2]->Release();
  claims_[0].reset();
  EndTurn();
  EXPECT_THAT(had_room_, ElementsAre(3));
}

TEST_F(CallbackMemoryTest, WhatIsToldMayEndClaims) {
  const auto account = NewAccount();
  account->Hold(500);
  Claim& second = NewClaim(account);
  Claim first(account, [&] {
    had_room_.push_back(-1);
    second.Release();
  });
  EXPECT_FALSE(first.Take(100));
  EXPECT_FALSE(second.Take(100));
  account->Release(500);
  EndTurn();
  EXPECT_THAT(had_room_, ElementsAre(-1));
}

TEST_F(CallbackMemoryTest, AnAccountThatGoesReleasesAll) {
  const auto waits = NewAccount();
  auto account = NewAccount();
  account->Hold(50'000);
  EXPECT_TRUE(NewClaim(waits).Take(100)) << "alone";
  EXPECT_FALSE(NewClaim(waits).Take(100));
  account.reset();
  EXPECT_EQ(memory_.waiting_bytes(), 0);
  claims_[0]->Release();
  EndTurn();
  EXPECT_THAT(had_room_, ElementsAre(1));
}

TEST_F(CallbackMemoryTest, ALargerBoundLetsInWhatWaits) {
  const auto account = NewAccount();
  ASSERT_TRUE(NewClaim(account).Take(500));
  EXPECT_FALSE(NewClaim(account).Take(500));
  memory_.SetBound(2 * kBound);
  EndTurn();
  EXPECT_THAT(had_room_, ElementsAre(1));
}

TEST_F(CallbackMemoryTest, WithoutAnAccountNothingIsBounded) {
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(NewClaim(nullptr).Take(50'000));
}

TEST_F(CallbackMemoryTest, DecompressedBytesAreSeen) {
  memory_.CountDecompressed(100);
  EXPECT_EQ(memory_.waiting_bytes(), 100);
  memory_.CountDecompressed(-100);
  EXPECT_EQ(memory_.waiting_bytes(), 0);
}

// Many fan-outs, whose messages arrive and are merged in any order: the bound holds, and no message waits forever.
TEST_F(CallbackMemoryTest, TheBoundHoldsAndAllComesWhateverTheOrder) {
  const RandomSeed seed = TakeRandomSeed();
  std::mt19937_64 random(seed.value);
  const auto below = [&](uint64_t bound) { return static_cast<int64_t>(random() % bound); };
  struct Call {
    std::unique_ptr<Claim> claim;
    std::shared_ptr<Account> account;
    int64_t bytes = 0;
    bool asked = false;
    bool let_in = false;
  };
  struct Message {
    std::shared_ptr<Account> account;
    int64_t bytes = 0;
  };
  std::vector<std::unique_ptr<Call>> calls;
  std::vector<Message> messages;
  std::vector<std::shared_ptr<Account>> accounts;
  for (int i = 0; i < 8; ++i) accounts.push_back(NewAccount());
  for (int i = 0; i < 200; ++i) {
    auto call = std::make_unique<Call>();
    call->account = accounts[random() % accounts.size()];
    call->bytes = random() % 10 == 0 ? below(5000) : below(200);
    call->claim = std::make_unique<Claim>(call->account, [raw = call.get()] { raw->let_in = true; });
    calls.push_back(std::move(call));
  }
  int64_t largest_alone = 0;
  for (int step = 0; !calls.empty() || !messages.empty(); ++step) {
    ASSERT_LT(step, 1'000'000) << "SLUICE_SEED=" << seed.value;
    if (!messages.empty() && (calls.empty() || random() % 3 == 0)) {
      std::swap(messages[random() % messages.size()], messages.back());
      messages.back().account->Release(messages.back().bytes);
      messages.pop_back();
    } else {
      std::unique_ptr<Call>& call = calls[random() % calls.size()];
      if (!std::exchange(call->asked, true)) {
        call->let_in = call->claim->Take(call->bytes);
      } else if (call->let_in) {
        if (random() % 10 > 0) {  // otherwise the call ends without its message
          Come(*call->account, *call->claim, call->bytes);
          messages.push_back({call->account, call->bytes});
        }
        std::swap(call, calls.back());
        calls.pop_back();
      }
    }
    EndTurn();
    int64_t counted = 0;
    for (const Message& message : messages) counted += message.bytes;
    for (const auto& call : calls) {
      if (call->let_in) counted += call->bytes, largest_alone = std::max(largest_alone, call->bytes);
    }
    ASSERT_LE(memory_.counted_bytes(), kBound) << "SLUICE_SEED=" << seed.value;
    ASSERT_LE(counted, kBound + 5000) << "SLUICE_SEED=" << seed.value;
  }
  EXPECT_EQ(memory_.counted_bytes(), 0);
  EXPECT_EQ(memory_.waiting_bytes(), 0);
}

}  // namespace
}  // namespace sluice
