#include "lib/link/callback_memory.h"

#include <utility>

namespace sluice {

CallbackMemory::CallbackMemory(TimerQueue& timers, AggregatorMetrics& metrics, std::function<TimePoint()> now)
    : timers_(timers), metrics_(metrics), now_(std::move(now)) {}

CallbackMemory::~CallbackMemory() {
  timers_.Clear(timer_);
}

void CallbackMemory::SetBound(int64_t bytes, TimePoint::duration patience) {
  bound_bytes_ = bytes;
  patience_ = patience;
  if (!waiting_.empty()) LookLater(now_());
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

// Serves the claims that wait. An account that was served goes behind the others, since only one account at a time may
// go alone. The claims are told last, since they may then release claims and take others.
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
  if (!waiting_.empty() && !aging_.empty()) LookLater(aging_.front().since_ + patience_);
}

void CallbackMemory::EndPatience() {
  const TimePoint now = now_();
  while (!aging_.empty() && aging_.front().since_ + patience_ <= now) {
    Claim& claim = aging_.front();
    aging_.pop_front();
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
  memory.metrics_.CountCallbackHold();
  return false;
}

void CallbackMemory::Claim::Enter() {
  bytes_ = wanted_bytes_;
  counts_ = true;
  account_->memory_.Count(*account_, bytes_);
  if (!held_) Age();
}

void CallbackMemory::Claim::Age() {
  CallbackMemory& memory = account_->memory_;
  AgingHook::unlink();
  since_ = memory.now_();
  memory.aging_.push_back(*this);
  memory.LookWhenOld();
}

void CallbackMemory::Claim::OnHeld(bool held) {
  held_ = held;
  if (!counts_) return;
  if (held) {
    AgingHook::unlink();
  } else {
    Age();
  }
}

void CallbackMemory::Claim::OnProgress() {
  if (AgingHook::is_linked()) Age();
}

void CallbackMemory::Claim::Release() {
  if (account_ == nullptr) return;
  if (Hook::is_linked()) {
    Hook::unlink();
    if (account_->waiting_.empty()) account_->unlink();
  }
  AgingHook::unlink();
  const int64_t bytes = std::exchange(bytes_, 0);
  if (std::exchange(counts_, false)) account_->memory_.Count(*account_, -bytes);
}

}  // namespace sluice
