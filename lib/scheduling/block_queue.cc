#include "lib/scheduling/block_queue.h"

#include <algorithm>
#include <cassert>
#include <utility>

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
  CountUngranted(block, phase, 1);
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
  CountUngranted(block, call.phase, -1);
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
  if (was_waiting && block.waiting.empty()) UnlinkWaiting(block);
  if (!was_waiting && !block.waiting.empty()) LinkWaiting(block);
  if (block.DeadlineHook::is_linked() && !block.ungranted()) deadlines_.erase(deadlines_.iterator_to(block));
  if (!block.DeadlineHook::is_linked() && block.ungranted()) deadlines_.insert(block);
}

void BlockQueue::LinkWaiting(QueuedBlock& block) {
  if (block.ahead) {
    ahead_.insert(block);
  } else {
    waiting_.insert(block);
    waiting_by_age_.insert(block);
  }
}

void BlockQueue::UnlinkWaiting(QueuedBlock& block) {
  if (block.ahead) {
    ahead_.erase(ahead_.iterator_to(block));
  } else {
    waiting_.erase(waiting_.iterator_to(block));
    waiting_by_age_.erase(waiting_by_age_.iterator_to(block));
  }
}

void BlockQueue::SetRank(QueuedBlock& block, int rank) {
  RankedWork& before = work_[static_cast<size_t>(block.rank)];
  before.ungranted_calls -= block.ranked.ungranted_calls;
  before.remaining_bytes -= std::exchange(block.ranked.remaining_bytes, block.remaining_bytes);
  if (block.rank != rank) {
    const bool waits = !block.waiting.empty();
    if (waits) UnlinkWaiting(block);
    block.rank = rank;
    if (waits) LinkWaiting(block);
  }
  RankedWork& after = work_[static_cast<size_t>(rank)];
  after.ungranted_calls += block.ranked.ungranted_calls;
  after.remaining_bytes += block.ranked.remaining_bytes;
}

RankedWork BlockQueue::WorkUpTo(int rank) const {
  RankedWork sum;
  for (int i = 0; i <= rank; ++i) {
    sum.ungranted_calls += work_[static_cast<size_t>(i)].ungranted_calls;
    sum.remaining_bytes += work_[static_cast<size_t>(i)].remaining_bytes;
  }
  return sum;
}

void BlockQueue::CountUngranted(QueuedBlock& block, Call::Phase phase, int64_t more_calls) {
  if (phase != Call::Phase::kSent && phase != Call::Phase::kReady) return;
  block.ranked.ungranted_calls += more_calls;
  work_[static_cast<size_t>(block.rank)].ungranted_calls += more_calls;
}

}  // namespace sluice
