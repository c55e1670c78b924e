#include "lib/proxy/look_up_turns.h"

#include <utility>

namespace sluice {

LookUpTurns::Turn::Turn(std::shared_ptr<LookUpTurns> turns, size_t group, std::function<void()> begin)
    : turns_(std::move(turns)), group_(group), begin_(std::move(begin)) {}

void LookUpTurns::Turn::Ask() {
  if (state_ != State::kNone) return;
  state_ = State::kWaiting;
  turns_->groups_[group_].waiting.push_back(*this);
  turns_->BeginNext(group_);
}

void LookUpTurns::Turn::End() {
  if (state_ == State::kNone) return;
  unlink();
  if (std::exchange(state_, State::kNone) == State::kRunning) --turns_->groups_[group_].running;
  turns_->BeginNext(group_);
}

void LookUpTurns::BeginNext(size_t group) {
  const auto found = groups_.find(group);
  Group& of = found->second;
  if (of.running < kAtOnce && !of.waiting.empty()) {
    Turn& next = of.waiting.front();
    of.waiting.pop_front();
    next.state_ = Turn::State::kRunning;
    ++of.running;
    next.begin_();
  } else if (of.running == 0 && of.waiting.empty()) {
    groups_.erase(found);
  }
}

}  // namespace sluice
