#pragma once

#include <chrono>
#include <cstdint>

#include <boost/intrusive/list.hpp>

#include "sluice/time_point.h"

#include "lib/scheduling/budget.h"
#include "lib/scheduling/queued_worker.h"
#include "lib/scheduling/worker_share.h"

namespace sluice {

// The laps of all workers (see WorkerShare): which workers owe bytes and since when, which worker is late, and how much
// of the budget each may have outstanding. It counts the bytes of slow workers in the budget, which must outlive it.
// There is one for each schedule. Not thread-safe.
class WorkerLaps {
 public:
  explicit WorkerLaps(Budget& budget);

  // Begins the share of a worker again, after a change of `bounded`.
  void Restart(QueuedWorker& worker, TimePoint now);
  void OnBudgetChanged();  // call it after each change of the budget or of its profile

  // Records that the link has received bytes of this cost. Laps count them, and not time.
  void OnReceived(int64_t cost_bytes) { received_bytes_ += cost_bytes; }
  int64_t received_bytes() const { return received_bytes_; }  // since the start, in units of the budget

  // Records that owed_bytes of the worker have changed by `more_owed_bytes`, or its charged_bytes have changed.
  // `progress`: bytes were received.
  void Update(QueuedWorker& worker, int64_t more_owed_bytes, bool progress, TimePoint now);
  void OnStall(QueuedWorker& worker, TimePoint now);  // granted bytes of the worker did not come in time

  // Updates the worker's share for the time that has passed, and returns whether the worker is full: it has its share
  // outstanding. Bytes of a worker that is not slow count only once the worker owes them, since it may think for a long
  // time before. All charged bytes of a slow worker count. A slow worker is also full while all slow workers together
  // have all that does not count in the budget.
  bool IsFull(QueuedWorker& worker, TimePoint now);
  // Halves the share of a worker whose lap takes long, and returns the worker. Returns null if there is none. Call it
  // while a call waits for room.
  QueuedWorker* TakeLate(TimePoint now);
  bool slow_are_full() const { return budget_.slow_are_full(); }
  TimePoint next_late() const;                      // when TakeLate may return a worker; TimePoint::max() for never
  int64_t late_laps() const { return late_laps_; }  // since the start
  int64_t ShareBytes(const QueuedWorker& worker) const {
    return worker.bounded ? worker.share.Bytes(LinkAt(TimePoint())) : budget_.bytes();
  }

 private:
  bool Look(QueuedWorker& worker, const WorkerShare::Link& link, bool wanted);
  void Queue(QueuedWorker& worker);
  void CountSlow(QueuedWorker& worker);
  WorkerShare::Link LinkAt(TimePoint now) const;

  Budget& budget_;
  // The workers that owe bytes, in the order in which their laps began.
  boost::intrusive::list<QueuedWorker, boost::intrusive::base_hook<LapHook>,
                         boost::intrusive::constant_time_size<false>>
      laps_;
  std::chrono::nanoseconds long_lap_{0};
  int64_t late_laps_ = 0;
  int64_t received_bytes_ = 0;
};

}  // namespace sluice
