#include "lib/link/callbacks.h"

#include <iterator>
#include <utility>

namespace sluice {

CallbackThread::CallbackThread(LinkCore& core) : core_(core), thread_([this] { Loop(); }) {}

CallbackThread::~CallbackThread() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void CallbackThread::Run(std::function<void()> callback, When when) {
  collected_.push_back(std::move(callback));
  if (ends_turn_) return;
  if (when == When::kThisTurn || collected_.size() >= kCollectAtMost) {
    ends_turn_ = true;
    core_.AtEndOfTurn([this] { HandOver(); });
  } else if (collected_.size() == 1) {
    timer_ = core_.timers().Set(core_.now() + kCollectTime, [this] { HandOver(); });
  }
}

void CallbackThread::HandOver() {
  ends_turn_ = false;
  core_.timers().Clear(timer_);
  if (collected_.empty()) return;
  bool wake = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    wake = handed_over_.empty();
    if (wake) {
      handed_over_.swap(collected_);
    } else {
      std::move(collected_.begin(), collected_.end(), std::back_inserter(handed_over_));
    }
  }
  collected_.clear();
  if (wake) wake_.notify_one();
}

void CallbackThread::Loop() {
  std::vector<std::function<void()>> callbacks;
  while (true) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !handed_over_.empty(); });
      if (handed_over_.empty()) return;
      callbacks.swap(handed_over_);
    }
    for (std::function<void()>& callback : callbacks) std::exchange(callback, nullptr)();
    callbacks.clear();
  }
}

}  // namespace sluice
