#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include "lib/link/reset_allowance.h"
#include "lib/link/scheduled_stream.h"
#include "lib/net/timer_queue.h"

namespace sluice {

class LinkLoop;

// The abandoned calls of a worker that are still on the wire, and may be reset one after the other: servers end the
// connection of a client that resets too often. There is one for each Worker, used on the link's thread only.
class ResetQueue {
 public:
  // `on_late` is called every 0.2 s while the last call has to wait for more than a second. It may end the connections
  // of the calls. The loop must outlive the queue.
  ResetQueue(LinkLoop& loop, std::function<void()> on_late) : loop_(loop), on_late_(std::move(on_late)) {}
  ~ResetQueue();
  ResetQueue(const ResetQueue&) = delete;
  ResetQueue& operator=(const ResetQueue&) = delete;

  // Returns whether one more stream may be reset now. Calls that wait for that come first.
  bool Take(TimePoint now) { return waiting_.empty() && allowance_.Take(now); }
  // Counts a reset that the session sent by itself.
  void Count(TimePoint now) { allowance_.Count(now); }
  // Calls ResetNow of the call as soon as its stream may be reset, unless it ends before, or waits already. `counter`
  // counts it until then.
  void Wait(ScheduledStream& call, size_t& counter);
  // The worker has ended a connection because of resets.
  void Lower() { allowance_.Lower(); }

 private:
  void SetTimer();
  void Reset();

  LinkLoop& loop_;
  const std::function<void()> on_late_;
  ResetAllowance allowance_;
  WaitingStreams waiting_;  // all are open, because a stream leaves the list when it ends
  TimerQueue::Id timer_;    // for the first of them, or for on_late_
};

}  // namespace sluice
