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

void CallbackThread::Run(Owner owner, std::function<void()> callback, When when) {
  collected_.push_back({owner, std::move(callback)});
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

// A callback may be long, so what has been handed over since takes part in the choice of each.
void CallbackThread::Loop() {
  std::vector<Callback> callbacks;
  auto began = std::chrono::steady_clock::now();
  while (Await(callbacks)) {
    if (queue_.empty()) began = std::chrono::steady_clock::now();
    for (Callback& callback : callbacks) queue_.Push(callback.owner, std::move(callback.run));
    callbacks.clear();
    queue_.Pop()();
    const auto ended = std::chrono::steady_clock::now();
    queue_.Took(ended - std::exchange(began, ended));
  }
}

// Takes what was handed over. Returns false if nothing is left to run, nor will be.
bool CallbackThread::Await(std::vector<Callback>& callbacks) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (queue_.empty()) wake_.wait(lock, [this] { return stopping_ || !handed_over_.empty(); });
  callbacks.swap(handed_over_);
  return !queue_.empty() || !callbacks.empty();
}

}  // namespace sluice
