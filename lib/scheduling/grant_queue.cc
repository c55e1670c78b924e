#include "lib/scheduling/grant_queue.h"

#include <bit>

#include "lib/scheduling/block_queue.h"

namespace sluice {

void GrantQueue::Add(Call& call) {
  call.queued = ++last_queued_;
  call.turn = call.progress.unwanted ? Call::Turn::kUnwanted : Call::Turn::kWanted;
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
  if (call.turn == Call::Turn::kUnwanted) {
    worker.unwanted.insert(call);
  } else {
    worker.Of(call).turns.insert(call);
    worker.Of(call).by_age.insert(call);
    worker.turn_classes.set(traffic_class);
  }
  Link(worker);
  Link(worker, traffic_class);
}

void GrantQueue::Detach(Call& call) {
  QueuedWorker& worker = *call.worker;
  const size_t traffic_class = call.block->traffic_class;
  Unlink(worker);
  Unlink(worker, traffic_class);
  if (call.turn == Call::Turn::kUnwanted) {
    worker.unwanted.erase(worker.unwanted.iterator_to(call));
  } else {
    ClassCalls& calls = worker.Of(call);
    calls.turns.erase(calls.turns.iterator_to(call));
    calls.by_age.erase(calls.by_age.iterator_to(call));
    worker.turn_classes[traffic_class] = !calls.turns.empty();
  }
  Link(worker);
  Link(worker, traffic_class);
}

void GrantQueue::SetOpen(QueuedWorker& worker, bool open) {
  if (worker.open == open) return;
  Unlink(worker);
  const uint64_t of = worker.turn_classes.to_ullong();
  for (uint64_t left = of; left != 0; left &= left - 1) Unlink(worker, std::countr_zero(left));
  worker.open = open;
  Link(worker);
  for (uint64_t left = of; left != 0; left &= left - 1) Link(worker, std::countr_zero(left));
}

// The sets order workers by their first calls, so a worker must leave the sets while its calls change.
void GrantQueue::Unlink(QueuedWorker& worker) {
  if (!worker.open || worker.unwanted.empty()) return;
  unwanted_.erase(unwanted_.iterator_to(worker));
}

void GrantQueue::Unlink(QueuedWorker& worker, size_t traffic_class) {
  ClassCalls& calls = worker.classes[traffic_class];
  if (!worker.open || calls.turns.empty()) return;
  ClassTurns& of = classes_[traffic_class];
  of.turns.erase(of.turns.iterator_to(calls));
  of.by_age.erase(of.by_age.iterator_to(calls));
  classes_with_turns_[traffic_class] = !of.turns.empty();
}

void GrantQueue::Link(QueuedWorker& worker) {
  if (!worker.open || worker.unwanted.empty()) return;
  unwanted_.insert(worker);
}

void GrantQueue::Link(QueuedWorker& worker, size_t traffic_class) {
  ClassCalls& calls = worker.classes[traffic_class];
  if (!worker.open || calls.turns.empty()) return;
  classes_[traffic_class].turns.insert(calls);
  classes_[traffic_class].by_age.insert(calls);
  classes_with_turns_.set(traffic_class);
}

}  // namespace sluice
