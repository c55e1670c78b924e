#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/link/callback_memory.h"
#include "prometheus/registry.h"

namespace sluice::testing {

// The claims and accounts of a CallbackMemory. The test sets the time.
class CallbackMemoryTest : public ::testing::Test {
 protected:
  using Account = CallbackMemory::Account;
  using Claim = CallbackMemory::Claim;

  static constexpr int64_t kBound = 1000;
  static constexpr std::chrono::milliseconds kPatience{300};
  static constexpr std::chrono::milliseconds kByteTime{1};

  CallbackMemoryTest() {
    memory_.SetBound(kBound);
    memory_.SetPatience(kPatience, kByteTime);
  }

  std::shared_ptr<Account> NewAccount() { return std::make_shared<Account>(memory_); }
  // Records its number when a waiting claim gets room.
  Claim& NewClaim(const std::shared_ptr<Account>& account) {
    const int number = static_cast<int>(claims_.size());
    return *claims_.emplace_back(std::make_unique<Claim>(account, [this, number] { had_room_.push_back(number); }));
  }
  // The message of a claim arrives, and waits for its callback.
  static void Come(Account& account, Claim& claim, int64_t bytes) {
    account.Hold(bytes);
    claim.Release();
  }
  void EndTurn(std::chrono::milliseconds pause = std::chrono::milliseconds(0)) {
    now_ += pause;
    timers_.RunDue(now_);
  }

  TimePoint now_{std::chrono::hours(1)};
  TimerQueue timers_;
  prometheus::Registry registry_;
  LinkMetrics metrics_{registry_};
  CallbackMemory memory_{timers_, metrics_, [this] { return now_; }};
  std::vector<std::unique_ptr<Claim>> claims_;
  std::vector<int> had_room_;
};

}  // namespace sluice::testing
