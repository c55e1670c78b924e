#include "lib/scheduling/grant_queue.h"

#include "lib/scheduling/block_queue.h"
#include "lib/scheduling/saturating_add.h"

namespace sluice {

void GrantQueue::AddNew(Call& call, TimePoint now) {
  Add(call, Call::Turn::kNew, now);
}

void GrantQueue::AddRest(Call& call, TimePoint now) {
  Add(call, Call::Turn::kRest, now);
}

void GrantQueue::Add(Call& call, Call::Turn turn, TimePoint now) {
  QueuedWorker& worker = *call.worker;
  Unlink(worker);
  call.turn = call.progress.unwanted ? Call::Turn::kUnwanted : turn;
  call.place = ++last_place_;
  call.held_since = now;
  Insert(call);
  Link(worker);
}

void GrantQueue::Remove(Call& call) {
  if (call.turn == Call::Turn::kNone) return;
  QueuedWorker& worker = *call.worker;
  Unlink(worker);
  Erase(call);
  call.turn = Call::Turn::kNone;
  Link(worker);
}

void GrantQueue::Insert(Call& call) {
  QueuedWorker& worker = *call.worker;
  worker.turns.insert(worker.turns.end(), call);
  if (call.turn == Call::Turn::kNew) {
    worker.new_turns.insert(worker.new_turns.end(), call);
  } else if (call.turn == Call::Turn::kRest) {
    worker.rests.insert(worker.rests.end(), call);
    ++worker.rest_calls;
  } else {
    worker.unwanted.insert(worker.unwanted.end(), call);
  }
}

void GrantQueue::Erase(Call& call) {
  QueuedWorker& worker = *call.worker;
  worker.turns.erase(worker.turns.iterator_to(call));
  if (call.turn == Call::Turn::kNew) {
    worker.new_turns.erase(worker.new_turns.iterator_to(call));
  } else if (call.turn == Call::Turn::kRest) {
    worker.rests.erase(worker.rests.iterator_to(call));
    --worker.rest_calls;
  } else {
    worker.unwanted.erase(worker.unwanted.iterator_to(call));
  }
}

void GrantQueue::SetOpen(QueuedWorker& worker, bool open) {
  if (worker.open == open) return;
  Unlink(worker);
  worker.open = open;
  Link(worker);
}

// The sets order workers by their first calls, so a worker must leave the sets while its calls change.
void GrantQueue::Unlink(QueuedWorker& worker) {
  if (!worker.open) return;
  if (!worker.new_turns.empty()) new_.erase(new_.iterator_to(worker));
  if (!worker.rests.empty()) rests_.erase(rests_.iterator_to(worker));
  if (!worker.unwanted.empty()) unwanted_.erase(unwanted_.iterator_to(worker));
  if (!worker.turns.empty()) held_.erase(held_.iterator_to(worker));
  rest_calls_ -= worker.rest_calls;
}

void GrantQueue::Link(QueuedWorker& worker) {
  if (!worker.open) return;
  if (!worker.new_turns.empty()) new_.insert(worker);
  if (!worker.rests.empty()) rests_.insert(worker);
  if (!worker.unwanted.empty()) unwanted_.insert(worker);
  if (!worker.turns.empty()) held_.insert(worker);
  rest_calls_ += worker.rest_calls;
}

Call* GrantQueue::Next(TimePoint now, int64_t budget_bytes) {
  if (held_.empty()) return nullptr;
  Call& longest = *held_.begin()->turns.begin();
  if (SaturatingAdd(longest.held_since, kHoldLimit) <= now) return &longest;
  if (!rests_.empty() && (new_.empty() || RestIsDue(budget_bytes))) return &*rests_.begin()->rests.begin();
  if (!new_.empty()) return &*new_.begin()->new_turns.begin();
  return &*unwanted_.begin()->unwanted.begin();
}

void GrantQueue::Take(Call& call, int64_t cost_bytes) {
  if (call.turn == Call::Turn::kRest) {
    overtook_bytes_ = 0;
  } else if (call.turn == Call::Turn::kNew) {
    Overtook(cost_bytes);
  }
  Remove(call);
}

void GrantQueue::Overtook(int64_t cost_bytes) {
  overtook_bytes_ += cost_bytes;
}

// Rejected: one budget of new responses before each turn of a rest. With ten large responses, each of them would wait
// for ten budgets.
bool GrantQueue::RestIsDue(int64_t budget_bytes) const {
  return rest_calls_ > 0 && overtook_bytes_ >= budget_bytes / rest_calls_;
}

}  // namespace sluice
