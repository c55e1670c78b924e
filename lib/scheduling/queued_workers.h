#pragma once

#include <cstddef>
#include <cstdint>

#include "sluice/time_point.h"

#include "absl/container/node_hash_map.h"
#include "lib/scheduling/block_queue.h"
#include "lib/scheduling/grant_queue.h"
#include "lib/scheduling/outstanding.h"
#include "lib/scheduling/queued_worker.h"
#include "lib/scheduling/sent_calls.h"
#include "lib/scheduling/worker_laps.h"

namespace sluice {

// The workers that have, or had, calls. A worker is open while it has less than its share outstanding. While it is not
// open, its waiting calls are held, and its ready responses have no turn. There is one for each schedule. Not
// thread-safe. The objects that it refers to must outlive it. Addresses are valid until Forget.
class QueuedWorkers {
 public:
  // `bounded`: workers have a share. Id 0, which represents all unknown workers, has none.
  QueuedWorkers(bool bounded, size_t class_count, BlockQueue& blocks, WorkerLaps& laps, Outstanding& outstanding,
                GrantQueue& queue, const SentCalls& sent);

  QueuedWorker& Of(uint32_t id);
  QueuedWorker& handshakes() { return handshakes_; }  // all handshakes, of any worker; without a bound
  const QueuedWorker* Find(uint32_t id) const;        // null if the worker is unknown
  void Forget(uint32_t id);                           // does nothing while the worker has calls that have not ended

  // Updates the worker's share for the time that has passed, and returns whether the worker is open.
  bool LookAt(QueuedWorker& worker, TimePoint now);
  // Returns whether requests may go to the worker: it is open, and if its headers are large, it has the turn of such
  // workers, and there is room for them.
  bool MayAsk(const QueuedWorker& worker) const {
    if (!worker.open || !worker.bounded || sent_.LargeHeaderBytes(worker) == 0) return worker.open;
    return (large_headers_.empty() || &large_headers_.front() == &worker) && sent_.HeadersFit(worker);
  }
  void LookAtAll(TimePoint now);
  // Looks at the workers that wait for room that they share, in turns, as long as there is some.
  void OpenSharedRoom(TimePoint now);
  // Gives all workers a share, or takes it. Shares begin again.
  void SetBounded(bool bounded, TimePoint now);
  // Halves the share of a late worker. Returns false if no worker is late. Call it while a call waits for room.
  bool ShrinkLate(TimePoint now);

  void Hold(Call& call, TimePoint now);  // the call must be waiting; it comes back when its worker may be asked
  // Lets held calls go that come first now, after a change of the rank of the block.
  void LetGoAgain(QueuedBlock& block, TimePoint now);
  void LeaveWaiting(Call& call);  // a call that waits, is held or is parked leaves, or ends unsent

 private:
  void LetGo(ClassCalls& calls, TimePoint now);
  // In the order in which they began to wait.
  template <class Hook>
  using Waiting = boost::intrusive::list<QueuedWorker, boost::intrusive::base_hook<Hook>,
                                         boost::intrusive::constant_time_size<false>>;

  void WaitForSharedRoom(QueuedWorker& worker);

  bool bounded_;
  const size_t class_count_;
  BlockQueue& blocks_;
  WorkerLaps& laps_;
  Outstanding& outstanding_;
  GrantQueue& queue_;
  const SentCalls& sent_;
  QueuedWorker unknown_;
  QueuedWorker handshakes_;
  absl::node_hash_map<uint32_t, QueuedWorker> workers_;
  Waiting<SlowHook> slow_;                   // while all slow workers together have too much outstanding
  Waiting<LargeHeadersHook> large_headers_;  // while there is no room for them
};

}  // namespace sluice
