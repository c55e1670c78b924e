#include "lib/scheduling/block_queue.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace sluice {
namespace {

CallList& ListOf(QueuedBlock& block, Call::Phase phase) {
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

// The search is short: only calls that were held before can wait ahead of a call that was held.
void PushWaiting(QueuedBlock& block, Call& call) {
  if (call.place == 0) call.place = ++block.last_place;
  const bool last = block.waiting.empty() || block.waiting.back().place < call.place;
  const auto next = last ? block.waiting.end()
                         : std::find_if(block.waiting.begin(), block.waiting.end(),
                                        [&call](const Call& other) { return other.place > call.place; });
  block.waiting.insert(next, call);
}

}  // namespace

QueuedBlock& BlockQueue::Add(TimePoint now, TimePoint deadline, size_t traffic_class) {
  QueuedBlock& block = blocks_[++last_id_];
  block.id = last_id_;
  block.since = now;
  by_age_.push_back(block);
  block.deadline = deadline;
  block.traffic_class = traffic_class;
  return block;
}

QueuedBlock& BlockQueue::AddAhead(TimePoint now, TimePoint deadline, bool retries) {
  QueuedBlock& block = Add(now, deadline, 0);
  block.ahead = true;
  block.retries = retries;
  return block;
}

void BlockQueue::Remove(QueuedBlock& block) {
  assert(block.ended());
  by_age_.erase(by_age_.iterator_to(block));
  SetLateAfter(block, TimePoint::max(), TimePoint::min());
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
  Count(block, phase, 1);
  if (phase == Call::Phase::kWaiting) {
    PushWaiting(block, call);
  } else {
    ListOf(block, phase).push_back(call);
  }
  Relink(block, was_waiting);
}

void BlockQueue::Take(Call& call) {
  QueuedBlock& block = *call.block;
  const bool was_waiting = !block.waiting.empty();
  CallList& list = ListOf(block, call.phase);
  list.erase(list.iterator_to(call));
  Count(block, call.phase, -1);
  Relink(block, was_waiting);
}

void BlockQueue::Move(Call& call, Call::Phase phase) {
  Take(call);
  Push(*call.block, call, phase);
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
    classes_[block.traffic_class].waiting.insert(block);
    classes_[block.traffic_class].waiting_by_age.insert(block);
    waiting_classes_.set(block.traffic_class);
  }
}

void BlockQueue::UnlinkWaiting(QueuedBlock& block) {
  if (block.ahead) {
    ahead_.erase(ahead_.iterator_to(block));
  } else {
    ClassBlocks& of = classes_[block.traffic_class];
    of.waiting.erase(of.waiting.iterator_to(block));
    of.waiting_by_age.erase(of.waiting_by_age.iterator_to(block));
    waiting_classes_[block.traffic_class] = !of.waiting.empty();
  }
}

void BlockQueue::CountRemaining(QueuedBlock& block) {
  changed_.set(block.traffic_class);
  const int64_t more_bytes = block.remaining_bytes - std::exchange(block.counted_bytes, block.remaining_bytes);
  classes_[block.traffic_class].remaining_bytes += more_bytes;
  remaining_bytes_ += more_bytes;
}

void BlockQueue::SetRequestRank(QueuedBlock& block, int request_rank) {
  if (block.request_rank == request_rank) return;
  const bool waits = !block.waiting.empty() && !block.ahead;
  auto& waiting = classes_[block.traffic_class].waiting;
  if (waits) waiting.erase(waiting.iterator_to(block));
  block.request_rank = request_rank;
  if (waits) waiting.insert(block);
}

bool BlockQueue::SetLateAfter(QueuedBlock& block, TimePoint late_after, TimePoint now) {
  if (block.LateHook::is_linked()) on_time_.erase(on_time_.iterator_to(block));
  block.late_after = late_after;
  const bool late = late_after < now;
  if (!late && late_after != TimePoint::max()) on_time_.insert(block);
  return late;
}

void BlockQueue::CountReady(QueuedBlock& block, int64_t more_bytes) {
  block.ready_bytes += more_bytes;
  classes_[block.traffic_class].ready_bytes += more_bytes;
  ready_bytes_ += more_bytes;
}

void BlockQueue::Count(QueuedBlock& block, Call::Phase phase, int64_t more_calls) {
  changed_.set(block.traffic_class);
  calls_[static_cast<size_t>(phase)] += more_calls;
  if (phase == Call::Phase::kSent || phase == Call::Phase::kReady) {
    block.ungranted_calls += more_calls;
  } else if (phase != Call::Phase::kInFlight && !block.ahead) {
    classes_[block.traffic_class].waiting_calls += more_calls;
  }
}

}  // namespace sluice
