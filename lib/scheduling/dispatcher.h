#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sluice/schedule.h"
#include "sluice/time_point.h"

#include "lib/scheduling/admission.h"
#include "lib/scheduling/batch_slots.h"
#include "lib/scheduling/live_calls.h"
#include "lib/scheduling/schedule_events.h"

namespace sluice {

// The order of admission: picks the call that is next, asks Admission whether it may go now, and takes the step. The
// order is that of ServiceOrder; in batches, the order among requests is that of BatchSlots. There is one for each
// schedule. Not thread-safe. The objects that it refers to must outlive it.
//
// Handshakes come first. Then comes the request or the ready response whose block is first by ServiceOrder; in a block,
// responses come before requests, because the link waits for them. The call whose turn it is waits until it fits, and
// no other overtakes it: a smaller one would fit more often, and starve it. A call whose worker is full keeps its place
// and is passed over, because it waits for its worker and not for the link.
class Dispatcher {
 public:
  Dispatcher(LiveCalls& calls, const Admission& admission, BatchSlots& slots);

  // Sends and grants all that may go now, and appends the actions. Call it at the end of each event.
  void Dispatch(TimePoint now, std::vector<Action>& actions);
  // When a call may go without another event: its slot begins, a worker is late, or a request becomes a straggler.
  TimePoint NextTimer(TimePoint now) const;

  bool HasBacklog() const;  // a request or a ready response waits for the budget
  // Returns a lease that is large enough for the next response and the next request; 0 if no call waits.
  int64_t NeedBytes() const;

 private:
  bool WaitsForRoom() const;
  bool SendAhead(TimePoint now, std::vector<Action>& actions);
  bool DispatchNext(TimePoint now, std::vector<Action>& actions);
  bool GrantNext(TimePoint now, std::vector<Action>& actions);
  bool GrantEarly(TimePoint now, std::vector<Action>& actions);
  bool SendNext(size_t traffic_class, TimePoint now, std::vector<Action>& actions);
  void Send(Call& call, int64_t bytes, TimePoint now, std::vector<Action>& actions);

  LiveCalls& calls_;
  BlockQueue& blocks_;
  QueuedWorkers& workers_;
  const Budget& budget_;
  const WorkerLaps& laps_;
  const GrantQueue& queue_;
  ServiceOrder& order_;
  SentCalls& sent_;
  const Admission& admission_;
  BatchSlots& slots_;
};

}  // namespace sluice
