#include "lib/link/callbacks.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <utility>

namespace sluice {

void AbortWith(const absl::Status& why) {
  std::cerr << "sluice: " << why.message() << std::endl;
  std::abort();
}

CallbackThreads::CallbackThreads(LinkLoop& loop, int threads) : loop_(loop) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
}

CallbackThreads::~CallbackThreads() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void CallbackThreads::Run(Owner owner, std::function<void()> callback, When when) {
  collected_.push_back({owner, std::move(callback)});
  if (ends_turn_) return;
  if (when == When::kThisTurn || collected_.size() >= kCollectAtMost) {
    ends_turn_ = true;
    loop_.AtEndOfTurn([this] { HandOver(); });
  } else if (collected_.size() == 1) {
    timer_ = loop_.timers().Set(loop_.now() + kCollectTime, [this] { HandOver(); });
  }
}

bool CallbackThreads::IsThisThread() const {
  return std::any_of(threads_.begin(), threads_.end(),
                     [](const std::thread& thread) { return thread.get_id() == std::this_thread::get_id(); });
}

void CallbackThreads::HandOver() {
  ends_turn_ = false;
  loop_.timers().Clear(timer_);
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

// A callback may run long, so each choice includes the callbacks that were handed over since the last one.
void CallbackThreads::Loop() {
  Lock lock(mutex_);
  while (Await(lock)) {
    CallbackQueue::Callback callback = queue_.Pop();
    if (!queue_.empty()) wake_.notify_one();
    lock.unlock();
    const auto began = std::chrono::steady_clock::now();
    std::exchange(callback.run, nullptr)();
    const auto took = std::chrono::steady_clock::now() - began;
    lock.lock();
    queue_.Took(callback.owner, took);
  }
}

// Waits until a callback may run. Returns false if this thread is no longer needed: the thread that runs a callback of
// an owner also runs the waiting callbacks of that owner.
bool CallbackThreads::Await(Lock& lock) {
  while (true) {
    for (CallbackQueue::Callback& callback : handed_over_) queue_.Push(std::move(callback));
    handed_over_.clear();
    if (!queue_.empty()) return true;
    if (stopping_) return false;
    wake_.wait(lock);
  }
}

}  // namespace sluice
