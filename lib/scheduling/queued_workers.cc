#include "lib/scheduling/queued_workers.h"

namespace sluice {

QueuedWorkers::QueuedWorkers(bool bounded, BlockQueue& blocks, WorkerLaps& laps, Outstanding& outstanding,
                             GrantQueue& queue)
    : bounded_(bounded), blocks_(blocks), laps_(laps), outstanding_(outstanding), queue_(queue) {
  unknown_.bounded = handshakes_.bounded = false;
}

QueuedWorker& QueuedWorkers::Of(uint32_t id) {
  if (id == 0) return unknown_;
  QueuedWorker& worker = workers_[id];
  worker.id = id;
  worker.bounded = bounded_;
  return worker;
}

const QueuedWorker* QueuedWorkers::Find(uint32_t id) const {
  const auto found = workers_.find(id);
  return found == workers_.end() ? nullptr : &found->second;
}

void QueuedWorkers::Forget(uint32_t id) {
  const auto found = workers_.find(id);
  if (found != workers_.end() && found->second.users == 0) workers_.erase(found);
}

bool QueuedWorkers::LookAt(QueuedWorker& worker, TimePoint now) {
  const bool open = !laps_.IsFull(worker, now);
  if (open != worker.open) ready_calls_ += open ? worker.ready_calls : -worker.ready_calls;
  queue_.SetOpen(worker, open);
  if (open && !worker.held.empty()) LetGo(worker, now);
  return open;
}

void QueuedWorkers::LookAtAll(TimePoint now) {
  for (auto& [id, worker] : workers_) LookAt(worker, now);
}

bool QueuedWorkers::ShrinkLate(TimePoint now) {
  QueuedWorker* const worker = laps_.TakeLate(now);
  if (worker != nullptr) LookAt(*worker, now);
  return worker != nullptr;
}

void QueuedWorkers::Hold(Call& call, TimePoint now) {
  LeaveWaiting(call);
  blocks_.Move(call, Call::Phase::kHeld);
  call.worker->held.insert(call);
  ++call.worker->held_calls;
  outstanding_.Update(call, now);
}

void QueuedWorkers::LeaveWaiting(Call& call) {
  QueuedWorker& worker = *call.worker;
  if (call.phase == Call::Phase::kHeld) {
    worker.held.erase(worker.held.iterator_to(call));
    --worker.held_calls;
  }
  if (worker.let_go == &call) worker.let_go = nullptr;
}

// Lets one call go at a time. A second call goes only if it precedes the call that was let go and has not left.
void QueuedWorkers::LetGo(QueuedWorker& worker, TimePoint now) {
  Call& call = *worker.held.begin();
  if (worker.let_go != nullptr && TurnKey()(*worker.let_go) < TurnKey()(call)) return;
  worker.held.erase(worker.held.begin());
  --worker.held_calls;
  worker.let_go = &call;
  blocks_.Move(call, Call::Phase::kWaiting);
  outstanding_.Update(call, now);
}

void QueuedWorkers::LetGoAgain(QueuedBlock& block, TimePoint now) {
  for (auto next = block.held.begin(); next != block.held.end();) {
    Call& call = *next++;
    if (call.worker->open && &call == &*call.worker->held.begin()) LetGo(*call.worker, now);
  }
  for (Call& call : block.waiting) {
    QueuedWorker& worker = *call.worker;
    if (worker.let_go == &call && worker.open && !worker.held.empty()) LetGo(worker, now);
  }
}

void QueuedWorkers::CountReady(QueuedWorker& worker, int64_t more_calls) {
  worker.ready_calls += more_calls;
  if (worker.open) ready_calls_ += more_calls;
}

}  // namespace sluice
