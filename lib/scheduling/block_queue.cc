#include "lib/scheduling/block_queue.h"

#include <algorithm>
#include <cassert>

namespace sluice {

QueuedBlock& BlockQueue::Add(TimePoint now, TimePoint deadline, bool ahead) {
  QueuedBlock& block = blocks_[++last_id_];
  block.id = last_id_;
  block.since = now;
  by_age_.push_back(block);
  block.deadline = deadline;
  block.ahead = ahead;
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
  ListOf(block, phase).push_back(call);
  Relink(block, was_waiting);
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

void BlockQueue::LinkWaiting(QueuedBlock& block) {
  // A new block goes to the end. One that comes back with a retry belongs near the front: calls leave oldest block
  // first, so only blocks that came back as well can be before it.
  const auto before = [](const QueuedBlock& a, const QueuedBlock& b) {
    return a.ahead == b.ahead ? a.id < b.id : a.ahead;
  };
  const auto next = !waiting_.empty() && before(waiting_.back(), block)
                        ? waiting_.end()
                        : std::find_if(waiting_.begin(), waiting_.end(),
                                       [&](const QueuedBlock& other) { return before(block, other); });
  waiting_.insert(next, block);
}

void BlockQueue::Relink(QueuedBlock& block, bool was_waiting) {
  if (was_waiting && block.waiting.empty()) waiting_.erase(waiting_.iterator_to(block));
  if (!was_waiting && !block.waiting.empty()) LinkWaiting(block);
  if (block.DeadlineHook::is_linked() && !block.ungranted()) deadlines_.erase(deadlines_.iterator_to(block));
  if (!block.DeadlineHook::is_linked() && block.ungranted()) deadlines_.insert(block);
}

}  // namespace sluice
