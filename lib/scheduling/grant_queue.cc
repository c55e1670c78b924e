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
  const size_t traffic_class = call.block->traffic_class;
  Unlink(worker);
  Unlink(worker, traffic_class);
  worker.all.insert(call);
  if (call.turn == Call::Turn::kUnwanted) {
    worker.unwanted.insert(call);
  } else {
    worker.Of(call).turns.insert(call);
    worker.Of(call).by_age.insert(call);
  }
  Link(worker);
  Link(worker, traffic_class);
}

void GrantQueue::Detach(Call& call) {
  QueuedWorker& worker = *call.worker;
  const size_t traffic_class = call.block->traffic_class;
  Unlink(worker);
  Unlink(worker, traffic_class);
  worker.all.erase(worker.all.iterator_to(call));
  if (call.turn == Call::Turn::kUnwanted) {
    worker.unwanted.erase(worker.unwanted.iterator_to(call));
  } else {
    ClassCalls& calls = worker.Of(call);
    calls.turns.erase(calls.turns.iterator_to(call));
    calls.by_age.erase(calls.by_age.iterator_to(call));
  }
  Link(worker);
  Link(worker, traffic_class);
}

void GrantQueue::SetOpen(QueuedWorker& worker, bool open) {
  if (worker.open == open) return;
  Unlink(worker);
  for (size_t i = 0; i < classes_.size(); ++i) Unlink(worker, i);
  worker.open = open;
  Link(worker);
  for (size_t i = 0; i < classes_.size(); ++i) Link(worker, i);
}

// The sets order workers by their first calls, so a worker must leave the sets while its calls change.
void GrantQueue::Unlink(QueuedWorker& worker) {
  if (!worker.open) return;
  if (!worker.unwanted.empty()) unwanted_.erase(unwanted_.iterator_to(worker));
  if (!worker.all.empty()) held_.erase(held_.iterator_to(worker));
}

void GrantQueue::Unlink(QueuedWorker& worker, size_t traffic_class) {
  ClassCalls& calls = worker.classes[traffic_class];
  if (!worker.open || calls.turns.empty()) return;
  ClassTurns& of = classes_[traffic_class];
  of.turns.erase(of.turns.iterator_to(calls));
  of.by_age.erase(of.by_age.iterator_to(calls));
}

void GrantQueue::Link(QueuedWorker& worker) {
  if (!worker.open) return;
  if (!worker.unwanted.empty()) unwanted_.insert(worker);
  if (!worker.all.empty()) held_.insert(worker);
}

void GrantQueue::Link(QueuedWorker& worker, size_t traffic_class) {
  ClassCalls& calls = worker.classes[traffic_class];
  if (!worker.open || calls.turns.empty()) return;
  classes_[traffic_class].turns.insert(calls);
  classes_[traffic_class].by_age.insert(calls);
}

Call* GrantQueue::HeldTooLong(TimePoint now) {
  if (held_.empty()) return nullptr;
  Call& longest = *held_.begin()->all.begin();
  return SaturatingAdd(longest.held_since, kHoldLimit) <= now ? &longest : nullptr;
}

}  // namespace sluice
