#include "lib/scheduling/queued_worker.h"

#include "lib/scheduling/block_queue.h"

namespace sluice {

NewTurnKey::type NewTurnKey::operator()(const Call& call) const {
  return {call.block->id, call.place};
}

QueuedWorkers::QueuedWorkers(bool bounded) : bounded_(bounded) {
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

}  // namespace sluice
