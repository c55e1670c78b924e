#pragma once

#include <cstdint>

#include "sluice/schedule.h"
#include "sluice/time_point.h"

#include "lib/scheduling/block_queue.h"
#include "lib/scheduling/budget.h"
#include "lib/scheduling/call_table.h"
#include "lib/scheduling/grant_queue.h"
#include "lib/scheduling/queued_workers.h"

namespace sluice {

// The order in which requests and ready responses are served: the shortest remaining block first (BlockOrder), and in
// a block the shortest message. A quarter of the link is kept for the oldest call: once one budget of bytes has
// overtaken it, it comes first whatever its size. Without shortest_first, and with batches, blocks are served first
// come, first served. There is one for each schedule. Not thread-safe. The objects that it refers to must outlive it.
//
// Anchors: SRPT is the order with the least mean time (Schrage, 1968), and Homa keeps a share for the oldest message,
// too. Rejected: the exact remaining bytes as the order. With each byte that arrives a block would move past its
// equals, and equal blocks would end all at the same time.
class ServiceOrder {
 public:
  ServiceOrder(const ScheduleOptions& options, BlockQueue& blocks, QueuedWorkers& workers, GrantQueue& queue,
               const Budget& budget);

  // Call them after each change of what is still to come of the block, and before a call is added to GrantQueue.
  void Update(QueuedBlock& block, TimePoint now);
  void Rank(Call& call) const;

  // Records bytes of this cost that are granted to a call. Call it before the call leaves its place.
  void OnGranted(const Call& call, int64_t cost_bytes);

  Call* NextReady(TimePoint now) { return queue_.Next(now, oldest_is_due()); }
  QueuedBlock* NextWaiting() { return oldest_is_due() ? blocks_.oldest_waiting() : blocks_.first_waiting(); }
  // Returns whether a ready response comes before the requests of this block.
  bool ReadyPrecedes(const QueuedBlock& block) const;

 private:
  bool oldest_is_due() const { return overtook_bytes_ >= budget_.bytes(); }

  const ScheduleOptions& options_;
  const bool may_rank_;
  BlockQueue& blocks_;
  QueuedWorkers& workers_;
  GrantQueue& queue_;
  const Budget& budget_;
  int64_t overtook_bytes_ = 0;  // cost of what others got since the last turn of the oldest call
};

}  // namespace sluice
