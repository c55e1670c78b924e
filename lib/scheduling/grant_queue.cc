#include "lib/scheduling/grant_queue.h"

#include "lib/scheduling/block_queue.h"
#include "lib/scheduling/saturating_add.h"

namespace sluice {

void GrantQueue::Add(Call& call, TimePoint now) {
  call.queued = ++last_queued_;
  call.turn = call.progress.unwanted ? Call::Turn::kUnwanted : Call::Turn::kWanted;
  call.held_since = now;
  Attach(call);
}

void GrantQueue::Remove(Call& call) {
  if (call.turn == Call::Turn::kNone) return;
  Detach(call);
  call.turn = Call::Turn::kNone;
}

void GrantQueue::Attach(Call& call) {
  QueuedWorker& worker = *call.worker;
  Unlink(worker);
  worker.all.insert(call);
  if (call.turn == Call::Turn::kUnwanted) {
    worker.unwanted.insert(call);
  } else {
    worker.turns.insert(call);
    worker.by_age.insert(call);
  }
  Link(worker);
}

void GrantQueue::Detach(Call& call) {
  QueuedWorker& worker = *call.worker;
  Unlink(worker);
  worker.all.erase(worker.all.iterator_to(call));
  if (call.turn == Call::Turn::kUnwanted) {
    worker.unwanted.erase(worker.unwanted.iterator_to(call));
  } else {
    worker.turns.erase(worker.turns.iterator_to(call));
    worker.by_age.erase(worker.by_age.iterator_to(call));
  }
  Link(worker);
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
  if (!worker.turns.empty()) turns_.erase(turns_.iterator_to(worker));
  if (!worker.by_age.empty()) by_age_.erase(by_age_.iterator_to(worker));
  if (!worker.unwanted.empty()) unwanted_.erase(unwanted_.iterator_to(worker));
  if (!worker.all.empty()) held_.erase(held_.iterator_to(worker));
}

void GrantQueue::Link(QueuedWorker& worker) {
  if (!worker.open) return;
  if (!worker.turns.empty()) turns_.insert(worker);
  if (!worker.by_age.empty()) by_age_.insert(worker);
  if (!worker.unwanted.empty()) unwanted_.insert(worker);
  if (!worker.all.empty()) held_.insert(worker);
}

Call* GrantQueue::Next(TimePoint now, bool oldest_is_due) {
  if (held_.empty()) return nullptr;
  Call& longest = *held_.begin()->all.begin();
  if (SaturatingAdd(longest.held_since, kHoldLimit) <= now) return &longest;
  if (turns_.empty()) return &*unwanted_.begin()->unwanted.begin();
  return oldest_is_due ? oldest() : first();
}

}  // namespace sluice
