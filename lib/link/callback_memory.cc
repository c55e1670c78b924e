#include "lib/link/callback_memory.h"

#include <utility>

namespace sluice {

CallbackMemory::CallbackMemory(TimerQueue& timers, LinkMetrics& metrics, std::function<TimePoint()> now)
    : timers_(timers), metrics_(metrics), now_(std::move(now)) {}

CallbackMemory::~CallbackMemory() {
  timers_.Clear(timer_);
}

void CallbackMemory::SetBound(int64_t bytes) {
  bound_bytes_ = bytes;
  if (!waiting_.empty()) LookLater(now_());
}

void CallbackMemory::SetPatience(TimePoint::duration patience, ByteTime byte_time) {
  patience_ = patience;
  byte_time_ = byte_time;
}

bool CallbackMemory::MayTake(Account& account, int64_t bytes, bool may_go_alone) {
  if (&account == alone_) return false;
  if (account.counted_bytes_ + bytes <= bound_bytes_ - counted_bytes_ - bytes) return true;
  if (!may_go_alone || account.counted_bytes_ > 0 || alone_ != nullptr) return false;
  alone_ = &account;
  return true;
}

void CallbackMemory::Count(Account& account, int64_t bytes) {
  account.counted_bytes_ += bytes;
  if (&account != alone_) {
    counted_bytes_ += bytes;
  } else if (account.counted_bytes_ == 0) {
    alone_ = nullptr;
  }
  if (bytes < 0 && !waiting_.empty()) LookLater(now_());
}

void CallbackMemory::LookLater(TimePoint when) {
  if (timer_.second != 0 && timer_.first <= when) return;
  timers_.Clear(timer_);
  timer_ = timers_.Set(when, [this] {
    timer_ = TimerQueue::Id();
    Look();
  });
}

// Serves the waiting claims. A served account goes behind the others, since only one account at a time may go alone.
// The calls of on_room_ come last, since they may release claims and take others.
void CallbackMemory::Look() {
  EndPatience();
  WaitingClaims taken;
  Accounts served;
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    Account& account = *next++;
    bool was_served = false;
    while (!account.waiting_.empty() && MayTake(account, account.waiting_.front().wanted_bytes_, true)) {
      Claim& claim = account.waiting_.front();
      claim.Hook::unlink();
      claim.Enter();
      taken.push_back(claim);
      was_served = true;
    }
    if (!account.waiting_.empty() && !was_served) continue;
    account.unlink();
    if (!account.waiting_.empty()) served.push_back(account);
  }
  waiting_.splice(waiting_.end(), served);
  LookWhenOld();
  while (!taken.empty()) {
    Claim& claim = taken.front();
    taken.pop_front();
    claim.on_room_();
  }
}

void CallbackMemory::LookWhenOld() {
  if (!waiting_.empty() && !aging_.empty()) LookLater(aging_.begin()->old_at_);
}

// Counts the received bytes here and not when they arrive, since most claims end before this.
void CallbackMemory::EndPatience() {
  const TimePoint now = now_();
  while (!aging_.empty() && aging_.begin()->old_at_ <= now) {
    Claim& claim = *aging_.begin();
    aging_.erase(aging_.begin());
    if (claim.Rejuvenate()) {
      aging_.insert(claim);
      continue;
    }
    claim.counts_ = false;
    Count(*claim.account_, -claim.bytes_);
  }
}

void CallbackMemory::Account::Hold(int64_t bytes) {
  waiting_bytes_ += bytes;
  memory_.waiting_bytes_ += bytes;
  memory_.Count(*this, bytes);
}

void CallbackMemory::Account::Release(int64_t bytes) {
  waiting_bytes_ -= bytes;
  memory_.waiting_bytes_ -= bytes;
  memory_.Count(*this, -bytes);
}

bool CallbackMemory::Claim::Take(int64_t bytes) {
  if (account_ == nullptr || bytes <= bytes_) return true;
  if (Hook::is_linked()) return false;
  Release();
  wanted_bytes_ = bytes;
  CallbackMemory& memory = account_->memory_;
  if (account_->waiting_.empty() && memory.MayTake(*account_, bytes, memory.waiting_.empty())) {
    Enter();
    return true;
  }
  account_->waiting_.push_back(*this);
  if (!account_->is_linked()) memory.waiting_.push_back(*account_);
  memory.LookWhenOld();
  // The claim may go alone, but only after the claims that wait already.
  if (account_->counted_bytes_ == 0 && memory.alone_ == nullptr) memory.LookLater(memory.now_());
  memory.metrics_.CountCallbackHold();
  return false;
}

void CallbackMemory::Claim::Enter() {
  CallbackMemory& memory = account_->memory_;
  bytes_ = wanted_bytes_;
  counts_ = true;
  memory.Count(*account_, bytes_);
  patience_ = memory.patience_;
  came_bytes_ = 0;
  if (!held_) Age();
}

void CallbackMemory::Claim::Age() {
  CallbackMemory& memory = account_->memory_;
  old_at_ = memory.now_() + patience_;
  memory.aging_.insert(*this);
  memory.LookWhenOld();
}

bool CallbackMemory::Claim::Rejuvenate() {
  if (came_bytes_ == 0) return false;
  const auto bytes = static_cast<double>(std::exchange(came_bytes_, 0));
  old_at_ += std::chrono::duration_cast<TimePoint::duration>(bytes * account_->memory_.byte_time_);
  return true;
}

void CallbackMemory::Claim::OnHeld(bool held) {
  if (std::exchange(held_, held) == held || !counts_) return;
  if (held) {
    AgingHook::unlink();
    patience_ = old_at_ - account_->memory_.now_();
  } else {
    Age();
  }
}

void CallbackMemory::Claim::Release() {
  if (account_ == nullptr) return;
  if (Hook::is_linked()) {
    Hook::unlink();
    if (account_->waiting_.empty()) {
      account_->unlink();
    } else {
      account_->memory_.LookLater(account_->memory_.now_());  // it may have held back a smaller claim
    }
  }
  AgingHook::unlink();
  const int64_t bytes = std::exchange(bytes_, 0);
  if (std::exchange(counts_, false)) account_->memory_.Count(*account_, -bytes);
}

}  // namespace sluice
