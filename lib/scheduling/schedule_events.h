#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "sluice/time_point.h"

// The values that go into a LinkSchedule and come out of it.
namespace sluice {

using BlockId = uint64_t;  // never reused
struct CallId {
  uint32_t slot = 0;
  uint32_t generation = 0;  // distinguishes a call from the previous call in the same slot
  friend bool operator==(CallId, CallId) = default;
};

// One call that the caller submits.
struct CallRequest {
  // Expected size of the response, or of all messages of a stream: 0 to kMaxResponseBytes (of sluice/plan.h). An empty
  // response still costs a packet; OnReady reports the true size.
  int64_t response_bytes = 0;
  uint64_t tag = 0;  // the caller's own value; comes back with every action
  // The call may stay open between messages. With grants it gets no early bytes, since unused early bytes would stay
  // charged until the next message.
  bool may_idle = false;
  bool parked = false;  // the worker cannot take it now; the call blocks no other until Unpark
  uint32_t worker = 0;  // the worker that receives the call; 0: unknown, and without a share
  bool retry = false;   // SubmitAhead: an earlier attempt has failed, so all others leave first
  // Above 0: the turn of a byte tunnel (see LinkSchedule), and the receive window of its connection; at most
  // response_bytes, which ranks the turn among other calls.
  int64_t window_bytes = 0;
};

// An action that the caller carries out. Each call ends exactly once: by kExpire, by kDrop, or by the caller's
// OnFinished.
struct Action {
  enum class Kind {
    // Send the request, and let the worker send `bytes` of the response; with 0 it sends only the length prefix. The
    // caller then reports OnReady and OnReceived, and OnFinished when the call has ended in any way. If the request was
    // not sent, the caller reports OnUnsent instead.
    kSend,
    kGrant,   // Let the worker send `bytes` more of the response.
    kStall,   // For counting only. Granted bytes did not arrive in time, and other calls get their budget. May come
              // again after progress.
    kExpire,  // The call has ended: the block's deadline passed while it waited. Nothing was sent.
    kDrop,    // The call has ended: it was cancelled while it waited. Nothing was sent.
    kAbort,   // Cancel the RPC; OnFinished still follows. The caller cancelled the call or its block while the call was
              // out, or the deadline passed before any of the response was granted.
  };
  Kind kind;
  CallId call;
  uint64_t tag;
  // kSend: 0 or more, kMaxResponseBytes for unscheduled. kGrant: 1 or more. The caller enlarges the window of the
  // stream by this much (WINDOW_UPDATE: RFC 9113, section 6.9).
  int64_t bytes = 0;
  friend bool operator==(const Action&, const Action&) = default;
};

// How a call in flight ended. kArrived: the whole response has arrived, or an error instead of it. kAborted: any other
// end, such as an abort, a deadline or a lost connection. Bytes that were granted to an aborted call may still arrive.
// So its charge is released only after a round trip and the time that a full buffer takes to drain (without a budget,
// at once).
enum class CallEnd { kArrived, kAborted };

// A part of the link's budget that this process may use for some time, if several processes share the link. See
// docs/internals/sharing.md.
struct BudgetLease {
  int64_t bytes = 0;                   // bytes that may be in flight; 0 or more. With 0 no call leaves
  TimePoint until = TimePoint::max();  // end of the lease; `bytes` is 0 from then on
  int64_t link_bytes = 0;              // the whole budget of the link; at least 1, and at least `bytes`
  int64_t plan_bytes = 0;              // the budget that parts of responses are sized for; 0 to link_bytes
  // Whether a call that costs more than `bytes` may go alone, as it may without a lease. Otherwise it waits for a
  // larger lease, since bytes of other processes are in flight, too.
  bool may_exceed = false;
  // The weights of all classes while the lease is in force, above 0; empty: those of ScheduleOptions.
  std::vector<double> class_weights;
};

// How much one class of traffic demands.
struct ClassDemand {
  double weight = 1;           // of ScheduleOptions
  int64_t demand_bytes = 0;    // as in LinkDemand
  int64_t received_bytes = 0;  // as in LinkDemand
  friend bool operator==(const ClassDemand&, const ClassDemand&) = default;
};

// How much of the link the schedule demands and uses at one moment.
struct LinkDemand {
  int64_t limit_bytes = 0;      // bytes that may be in flight now
  int64_t demand_bytes = 0;     // cost of the missing bytes of all live calls, except parked calls
  int64_t in_flight_bytes = 0;  // bytes that may be in the network now, including expected headers
  // A lease that is enough for the next call and the headers of stragglers; 0 if no call waits.
  int64_t need_bytes = 0;
  int64_t received_bytes = 0;        // response bytes since the start, in units of the budget
  BlockId oldest_block = 0;          // the oldest block that has not ended; 0 if there is none
  TimePoint oldest_since;            // when that block was submitted
  std::vector<ClassDemand> classes;  // of ScheduleOptions, in this order
};

// One worker of the schedule at one moment, in units of the budget.
struct WorkerLoad {
  int64_t share_bytes = 0;    // bytes that may be outstanding
  bool slow = false;          // the share is less than one part
  int64_t charged_bytes = 0;  // outstanding bytes, except early and stalled bytes
  int64_t owed_bytes = 0;     // outstanding bytes that are ready at the worker and not stalled
  int64_t calls = 0;          // live calls
  int64_t held_calls = 0;     // live calls that wait until the worker has less than its share outstanding
  int64_t out_calls = 0;      // live calls that were sent
  int64_t owing_calls = 0;    // live calls with granted bytes ready at the worker, stalled or not
  int64_t stalled_calls = 0;  // live calls whose granted bytes did not come in time
  int64_t ended_calls = 0;    // sent calls that have ended, since the start
  TimePoint owed_since;       // if calls owe: since when, or when the worker last sent something
  // How often, since the start, calls owed for kPause and a round trip before the worker sent something.
  int64_t pauses = 0;

  // Nearly the minimum retransmission timeout of Linux, whose clock ticks every 1 to 10 ms.
  static constexpr std::chrono::milliseconds kPause{190};
};

}  // namespace sluice
