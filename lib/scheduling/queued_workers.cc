#include "lib/scheduling/queued_workers.h"

#include <utility>

namespace sluice {

QueuedWorkers::QueuedWorkers(bool bounded, size_t class_count, BlockQueue& blocks, WorkerLaps& laps,
                             Outstanding& outstanding, GrantQueue& queue, const SentCalls& sent)
    : bounded_(bounded),
      class_count_(class_count),
      blocks_(blocks),
      laps_(laps),
      outstanding_(outstanding),
      queue_(queue),
      sent_(sent),
      unknown_(class_count),
      handshakes_(class_count) {
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
  if (found == workers_.end() || found->second.users > 0) return;
  QueuedWorker& worker = found->second;
  if (worker.SlowHook::is_linked()) slow_.erase(slow_.iterator_to(worker));
  if (worker.LargeHeadersHook::is_linked()) large_headers_.erase(large_headers_.iterator_to(worker));
  workers_.erase(found);
}

bool QueuedWorkers::LookAt(QueuedWorker& worker, TimePoint now) {
  const bool open = !laps_.IsFull(worker, now);
  queue_.SetOpen(worker, open);
  if (!open || worker.held_calls > 0) WaitForSharedRoom(worker);
  if (worker.held_calls > 0 && MayAsk(worker)) {
    for (ClassCalls& calls : worker.classes) {
      if (!calls.held.empty()) LetGo(calls, now);
    }
  }
  return open;
}

void QueuedWorkers::WaitForSharedRoom(QueuedWorker& worker) {
  if (!worker.bounded) return;
  if (!worker.SlowHook::is_linked() && worker.share.slow() && laps_.slow_are_full()) slow_.push_back(worker);
  if (!worker.LargeHeadersHook::is_linked() && worker.open && !MayAsk(worker)) large_headers_.push_back(worker);
}

void QueuedWorkers::OpenSharedRoom(TimePoint now) {
  while (!slow_.empty() && !laps_.slow_are_full()) {
    QueuedWorker& worker = slow_.front();
    slow_.pop_front();
    LookAt(worker, now);
  }
  while (!large_headers_.empty() && sent_.HeadersFit(large_headers_.front())) {
    QueuedWorker& worker = large_headers_.front();
    LookAt(worker, now);
    large_headers_.pop_front();
  }
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
  WaitForSharedRoom(*call.worker);
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
  if (calls.let_go != nullptr && HeldKey()(*calls.let_go) < HeldKey()(call)) return;
  calls.held.erase(calls.held.begin());
  --call.worker->held_calls;
  calls.let_go = &call;
  blocks_.Move(call, Call::Phase::kWaiting);
  outstanding_.Update(call, now);
}

void QueuedWorkers::LetGoAgain(QueuedBlock& block, TimePoint now) {
  if (blocks_.calls(Call::Phase::kHeld) == 0) return;
  for (auto next = block.held.begin(); next != block.held.end();) {
    Call& call = *next++;
    ClassCalls& calls = call.worker->Of(call);
    if (MayAsk(*call.worker) && &call == &*calls.held.begin()) LetGo(calls, now);
  }
  for (Call& call : block.waiting) {
    ClassCalls& calls = call.worker->Of(call);
    if (calls.let_go == &call && MayAsk(*call.worker) && !calls.held.empty()) LetGo(calls, now);
  }
}

}  // namespace sluice
