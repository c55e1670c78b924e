#pragma once

#include <boost/intrusive/list.hpp>

#include "sluice/time_point.h"

#include "absl/status/status.h"
#include "lib/link/scheduled_stream.h"
#include "lib/net/timer_queue.h"

namespace sluice {

class LinkLoop;

// Ends calls that have waited to be sent for longer than ScheduleOptions::queue_timeout. There is one for each
// LinkLoop, used on the link's thread only.
class QueueTimeout {
 public:
  explicit QueueTimeout(LinkLoop& loop) : loop_(loop) {}

  void Enter(ScheduledStream& call);  // the call waits from now on, if it does not wait already
  void OnOptionsChanged();

 private:
  TimePoint DueOf(const ScheduledStream& call) const;
  void SetTimer();
  void EndLate();
  absl::Status WhyLate(const ScheduledStream& call) const;

  LinkLoop& loop_;
  // All calls have the same timeout, so they are due in the order in which they came.
  boost::intrusive::list<ScheduledStream, boost::intrusive::base_hook<QueueLink>,
                         boost::intrusive::constant_time_size<false>>
      calls_;
  // For the first call, or for an earlier one that has left.
  TimerQueue::Id timer_;
};

}  // namespace sluice
