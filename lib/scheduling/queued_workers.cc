#include "lib/scheduling/queued_workers.h"

#include <utility>

namespace sluice {

QueuedWorkers::QueuedWorkers(bool bounded, size_t class_count, BlockQueue& blocks, WorkerLaps& laps,
                             Outstanding& outstanding, GrantQueue& queue)
    : bounded_(bounded),
      class_count_(class_count),
      blocks_(blocks),
      laps_(laps),
      outstanding_(outstanding),
      queue_(queue),
      unknown_(class_count),
      handshakes_(class_count),
      ready_calls_(class_count) {
  unknown_.bounded = handshakes_.bounded = false;
}

QueuedWorker& QueuedWorkers::Of(uint32_t id) {
  if (id == 0) return unknown_;
  QueuedWorker& worker = workers_.try_emplace(id, class_count_).first->second;
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
  if (open != worker.open) {
    for (size_t i = 0; i < class_count_; ++i) {
      ready_calls_[i] += open ? worker.classes[i].ready_calls : -worker.classes[i].ready_calls;
    }
    queue_.SetOpen(worker, open);
  }
  if (open && worker.held_calls > 0) {
    for (ClassCalls& calls : worker.classes) {
      if (!calls.held.empty()) LetGo(calls, now);
    }
  }
  return open;
}

void QueuedWorkers::LookAtAll(TimePoint now) {
  for (auto& [id, worker] : workers_) LookAt(worker, now);
}

void QueuedWorkers::SetBounded(bool bounded, TimePoint now) {
  if (std::exchange(bounded_, bounded) == bounded) return;
  for (auto& [id, worker] : workers_) {
    worker.bounded = bounded;
    laps_.Restart(worker, now);
    for (ClassCalls& calls : worker.classes) {
      // Without shares no call is held.
      for (calls.let_go = nullptr; !bounded && !calls.held.empty(); calls.let_go = nullptr) LetGo(calls, now);
    }
  }
}

bool QueuedWorkers::ShrinkLate(TimePoint now) {
  QueuedWorker* const worker = laps_.TakeLate(now);
  if (worker != nullptr) LookAt(*worker, now);
  return worker != nullptr;
}

void QueuedWorkers::Hold(Call& call, TimePoint now) {
  LeaveWaiting(call);
  blocks_.Move(call, Call::Phase::kHeld);
  call.worker->Of(call).held.insert(call);
  ++call.worker->held_calls;
  outstanding_.Update(call, now);
}

void QueuedWorkers::LeaveWaiting(Call& call) {
  ClassCalls& calls = call.worker->Of(call);
  if (call.phase == Call::Phase::kHeld) {
    calls.held.erase(calls.held.iterator_to(call));
    --call.worker->held_calls;
  }
  if (calls.let_go == &call) calls.let_go = nullptr;
}

// Lets one call of the class go at a time. A second call goes only if it precedes the call that was let go and has not
// left.
void QueuedWorkers::LetGo(ClassCalls& calls, TimePoint now) {
  Call& call = *calls.held.begin();
  if (calls.let_go != nullptr && TurnKey()(*calls.let_go) < TurnKey()(call)) return;
  calls.held.erase(calls.held.begin());
  --call.worker->held_calls;
  calls.let_go = &call;
  blocks_.Move(call, Call::Phase::kWaiting);
  outstanding_.Update(call, now);
}

void QueuedWorkers::LetGoAgain(QueuedBlock& block, TimePoint now) {
  for (auto next = block.held.begin(); next != block.held.end();) {
    Call& call = *next++;
    ClassCalls& calls = call.worker->Of(call);
    if (call.worker->open && &call == &*calls.held.begin()) LetGo(calls, now);
  }
  for (Call& call : block.waiting) {
    ClassCalls& calls = call.worker->Of(call);
    if (calls.let_go == &call && call.worker->open && !calls.held.empty()) LetGo(calls, now);
  }
}

void QueuedWorkers::CountReady(Call& call, int64_t more_calls) {
  call.worker->Of(call).ready_calls += more_calls;
  if (call.worker->open) ready_calls_[call.block->traffic_class] += more_calls;
}

}  // namespace sluice
