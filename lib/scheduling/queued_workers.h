#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sluice/time_point.h"

#include "absl/container/node_hash_map.h"
#include "lib/scheduling/block_queue.h"
#include "lib/scheduling/grant_queue.h"
#include "lib/scheduling/outstanding.h"
#include "lib/scheduling/queued_worker.h"
#include "lib/scheduling/worker_laps.h"

namespace sluice {

// The workers that have, or had, calls. A worker is open while it has less than its share outstanding. While it is not
// open, its waiting calls are held, and its ready responses have no turn. There is one for each schedule. Not
// thread-safe. The objects that it refers to must outlive it. Addresses are valid until Forget.
class QueuedWorkers {
 public:
  // `bounded`: workers have a share. Id 0, which represents all unknown workers, has none.
  QueuedWorkers(bool bounded, size_t class_count, BlockQueue& blocks, WorkerLaps& laps, Outstanding& outstanding,
                GrantQueue& queue);

  QueuedWorker& Of(uint32_t id);
  QueuedWorker& handshakes() { return handshakes_; }  // all handshakes, of any worker; without a bound
  const QueuedWorker* Find(uint32_t id) const;        // null if the worker is unknown
  void Forget(uint32_t id);                           // does nothing while the worker has calls that have not ended

  // Updates the worker's share for the time that has passed, and returns whether the worker is open.
  bool LookAt(QueuedWorker& worker, TimePoint now);
  void LookAtAll(TimePoint now);
  // Gives all workers a share, or takes it. Shares begin again.
  void SetBounded(bool bounded, TimePoint now);
  // Halves the share of a late worker. Returns false if no worker is late. Call it while a call waits for room.
  bool ShrinkLate(TimePoint now);

  void Hold(Call& call, TimePoint now);  // the call must be waiting; it comes back when its worker is open
  // Lets held calls go that come first now, after a change of the rank of the block.
  void LetGoAgain(QueuedBlock& block, TimePoint now);
  void LeaveWaiting(Call& call);  // a call that waits, is held or is parked leaves, or ends unsent

  void CountReady(Call& call, int64_t more_calls);  // like this one, in the phase kReady
  // Returns the ready responses of the class at open workers. Other ready responses wait for their worker, not for the
  // link.
  int64_t ready_calls(size_t traffic_class) const { return ready_calls_[traffic_class]; }

 private:
  void LetGo(ClassCalls& calls, TimePoint now);

  bool bounded_;
  const size_t class_count_;
  BlockQueue& blocks_;
  WorkerLaps& laps_;
  Outstanding& outstanding_;
  GrantQueue& queue_;
  QueuedWorker unknown_;
  QueuedWorker handshakes_;
  absl::node_hash_map<uint32_t, QueuedWorker> workers_;
  std::vector<int64_t> ready_calls_;  // by class
};

}  // namespace sluice
