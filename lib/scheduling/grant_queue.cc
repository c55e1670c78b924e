#include "lib/scheduling/grant_queue.h"

#include "lib/scheduling/saturating_add.h"

namespace sluice {

void GrantQueue::AddNew(Call& call, TimePoint now) {
  Add(call, Call::Turn::kNew, now);
  QueuedBlock& block = *call.block;
  block.new_turns.push_back(call);
  if (!block.GrantHook::is_linked()) blocks_.insert(block);
}

void GrantQueue::AddRest(Call& call, TimePoint now) {
  Add(call, Call::Turn::kRest, now);
  if (rest_calls_++ == 0) overtook_bytes_ = 0;
  rests_.push_back(call);
}

void GrantQueue::Add(Call& call, Call::Turn turn, TimePoint now) {
  call.turn = turn;
  call.held_since = now;
  held_.push_back(call);
}

void GrantQueue::Remove(Call& call) {
  switch (std::exchange(call.turn, Call::Turn::kNone)) {
    case Call::Turn::kNone:
      return;
    case Call::Turn::kNew: {
      QueuedBlock& block = *call.block;
      block.new_turns.erase(block.new_turns.iterator_to(call));
      if (block.new_turns.empty()) blocks_.erase(blocks_.iterator_to(block));
      break;
    }
    case Call::Turn::kRest:
      rests_.erase(rests_.iterator_to(call));
      --rest_calls_;
      break;
  }
  held_.erase(held_.iterator_to(call));
}

const Call* GrantQueue::Next(TimePoint now, int64_t budget_bytes) const {
  if (held_.empty()) return nullptr;
  if (SaturatingAdd(held_.front().held_since, kHoldLimit) <= now) return &held_.front();
  if (blocks_.empty() || RestIsDue(budget_bytes)) return &rests_.front();
  return &blocks_.begin()->new_turns.front();
}

void GrantQueue::Take(Call& call, int64_t cost_bytes) {
  if (call.turn == Call::Turn::kRest) {
    overtook_bytes_ = 0;
  } else {
    Overtook(cost_bytes);
  }
  Remove(call);
}

void GrantQueue::Overtook(int64_t cost_bytes) {
  if (rest_calls_ > 0) overtook_bytes_ += cost_bytes;
}

// Rejected: one budget of new answers before each turn of a rest. With ten large answers, each of them then waits for
// ten budgets.
bool GrantQueue::RestIsDue(int64_t budget_bytes) const {
  return rest_calls_ > 0 && overtook_bytes_ >= budget_bytes / rest_calls_;
}

}  // namespace sluice
