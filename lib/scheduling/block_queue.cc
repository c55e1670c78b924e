#include "lib/scheduling/block_queue.h"

#include <algorithm>
#include <cassert>

namespace sluice {

QueuedBlock& BlockQueue::Add(TimePoint deadline) {
  QueuedBlock& block = blocks_[++last_id_];
  block.id = last_id_;
  block.deadline = deadline;
  return block;
}

void BlockQueue::Remove(QueuedBlock& block) {
  assert(block.ended());
  blocks_.erase(block.id);
}

QueuedBlock* BlockQueue::Find(BlockId id) {
  const auto found = blocks_.find(id);
  return found == blocks_.end() ? nullptr : &found->second;
}

void BlockQueue::PushWaiting(QueuedBlock& block, Call& call) {
  if (block.waiting.empty()) Link(block);
  call.phase = Call::Phase::kWaiting;
  call.block = &block;
  block.waiting.push_back(call);
}

Call& BlockQueue::PopWaiting(QueuedBlock& block) {
  Call& call = block.waiting.front();
  block.waiting.pop_front();
  if (block.waiting.empty()) {
    waiting_.erase(waiting_.iterator_to(block));
    deadlines_.erase(deadlines_.iterator_to(block));
  }
  return call;
}

void BlockQueue::Link(QueuedBlock& block) {
  // A new block goes to the end. One that comes back with a retry belongs near the front: calls leave oldest block
  // first, so only blocks that came back as well can be before it.
  const auto younger = !waiting_.empty() && waiting_.back().id < block.id
                           ? waiting_.end()
                           : std::find_if(waiting_.begin(), waiting_.end(),
                                          [&](const QueuedBlock& other) { return other.id > block.id; });
  waiting_.insert(younger, block);
  deadlines_.insert(block);
}

}  // namespace sluice
