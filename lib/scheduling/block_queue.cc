#include "lib/scheduling/block_queue.h"

#include <algorithm>
#include <cassert>

namespace sluice {

QueuedBlock& BlockQueue::Add(TimePoint now, TimePoint deadline, bool ahead, bool retries) {
  QueuedBlock& block = blocks_[++last_id_];
  block.id = last_id_;
  block.since = now;
  by_age_.push_back(block);
  block.deadline = deadline;
  block.ahead = ahead;
  block.retries = retries;
  return block;
}

void BlockQueue::Remove(QueuedBlock& block) {
  assert(block.ended());
  by_age_.erase(by_age_.iterator_to(block));
  blocks_.erase(block.id);
}

QueuedBlock* BlockQueue::Find(BlockId id) {
  const auto found = blocks_.find(id);
  return found == blocks_.end() ? nullptr : &found->second;
}

void BlockQueue::Push(QueuedBlock& block, Call& call, Call::Phase phase) {
  const bool was_waiting = !block.waiting.empty();
  call.phase = phase;
  call.block = &block;
  ++calls_[static_cast<size_t>(phase)];
  if (phase == Call::Phase::kWaiting) {
    PushWaiting(block, call);
  } else {
    ListOf(block, phase).push_back(call);
  }
  Relink(block, was_waiting);
}

// The search is short: only calls that were held before can wait ahead of a call that was held.
void BlockQueue::PushWaiting(QueuedBlock& block, Call& call) {
  if (call.place == 0) call.place = ++block.last_place;
  const bool last = block.waiting.empty() || block.waiting.back().place < call.place;
  const auto next = last ? block.waiting.end()
                         : std::find_if(block.waiting.begin(), block.waiting.end(),
                                        [&call](const Call& other) { return other.place > call.place; });
  block.waiting.insert(next, call);
}

void BlockQueue::Take(Call& call) {
  QueuedBlock& block = *call.block;
  const bool was_waiting = !block.waiting.empty();
  CallList& list = ListOf(block, call.phase);
  list.erase(list.iterator_to(call));
  --calls_[static_cast<size_t>(call.phase)];
  Relink(block, was_waiting);
}

void BlockQueue::Move(Call& call, Call::Phase phase) {
  Take(call);
  Push(*call.block, call, phase);
}

CallList& BlockQueue::ListOf(QueuedBlock& block, Call::Phase phase) {
  switch (phase) {
    case Call::Phase::kParked:
      return block.parked;
    case Call::Phase::kHeld:
      return block.held;
    case Call::Phase::kWaiting:
      return block.waiting;
    case Call::Phase::kSent:
      return block.sent;
    case Call::Phase::kReady:
      return block.ready;
    default:
      return block.in_flight;
  }
}

void BlockQueue::Relink(QueuedBlock& block, bool was_waiting) {
  WaitingBlocks& waiting = WaitingOf(block);
  if (was_waiting && block.waiting.empty()) waiting.erase(waiting.iterator_to(block));
  if (!was_waiting && !block.waiting.empty()) waiting.insert(block);
  if (block.DeadlineHook::is_linked() && !block.ungranted()) deadlines_.erase(deadlines_.iterator_to(block));
  if (!block.DeadlineHook::is_linked() && block.ungranted()) deadlines_.insert(block);
}

}  // namespace sluice
