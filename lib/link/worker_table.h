#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lib/link/worker_faults.h"
#include "lib/link/worker_summary.h"
#include "lib/scheduling/link_schedule.h"
#include "lib/tcp/tcp_socket.h"

namespace sluice {

// What a look at the link's connections has shown since the last look.
struct LinkSight {
  int64_t connections = 0;
  std::optional<absl::Duration> min_rtt;       // smallest of all connections
  std::optional<absl::Duration> smoothed_rtt;  // mean of all connections
  uint64_t out_of_order_packets = 0;
  // Losses: at most one for each response, by the first evidence of it.
  int64_t losses_out_of_order = 0;
  int64_t losses_silent = 0;
  int64_t losses_paused = 0;   // suspected: the worker may also have stood still
  int64_t rto_waits = 0;       // silences that were as long as a retransmission timeout, paused ones with them
  int64_t active_workers = 0;  // that have calls, or sent bytes
  // Workers with a silence that the network made. Silences that end within half a second count together: the timeouts
  // of a full buffer end one after the other.
  int64_t lossy_workers = 0;
  int64_t worst_out_of_order = 0;  // the most losses_out_of_order of one worker
};

// What the aggregator sees of each worker of one link: how long responses take, and which of them lost packets on the
// way. It infers losses from the sockets of the aggregator, and from the bytes that the schedule has granted, so it
// works with any workers. There is one for each link, used on the link's thread only. docs/internals/losses.md has the
// reason for each rule.
//
// A loss shows in one of two ways. If later packets arrive, they are out of order. If nothing arrives, the connection
// is silent although bytes should come. If the bytes that we sent last are not acknowledged either, the network lost
// packets, or the whole host stood still. If they are acknowledged, and the worker owes bytes, then the last packets of
// a response were lost, or the process of the worker stood still: nothing tells which. A worker that is only slow owes
// nothing, and acknowledges the request within TCP's delay of 40 ms; one that responded at once has put the
// acknowledgement into the packets that were lost. Silence counts only once the worker is heard again: a dead host
// looks the same, and is not congestion.
class WorkerTable {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // Rows of workers that are gone and may come back. Above it the worker that is gone for the longest time is
  // forgotten. Rejected: a time. Pods that come and go a hundred a second would fill any table until then.
  static constexpr size_t kMaxGone = 1000;

  // Returns the row of a worker, the same one for the same address. The worker is wanted until Remove was called as
  // often as Add; then it is gone.
  size_t Add(const std::string& address);
  // Returns the row that is forgotten, if any: it may become the row of a different worker. The schedule has no call of
  // a worker that is gone, since a call keeps its worker.
  std::optional<size_t> Remove(size_t worker);
  // Number of workers that had the row before.
  uint64_t generation(size_t worker) const { return rows_[worker].generation; }
  bool IsWanted(const std::string& address) const;
  // The worker of this row in the link's schedule, where 0 is a worker that is not known.
  static uint32_t ScheduleId(size_t worker) { return static_cast<uint32_t>(worker) + 1; }

  // A connection to the worker was made, was lost, or is of no interest any more. OnConnected returns how long there
  // was no connection, if one was lost before.
  std::optional<absl::Duration> OnConnected(size_t worker, TimePoint now);
  void OnLost(size_t worker, TimePoint now);
  void OnForgotten(size_t worker);
  // Counts of the workers that are wanted.
  struct Reach {
    int64_t wanted = 0;
    int64_t connected = 0;
  };
  Reach CountReached() const;

  // Takes the times of an answer that has come.
  void OnAnswered(size_t worker, absl::Duration ready_after, absl::Duration transfer);
  // An attempt to connect failed. Without one, a worker that is not connected yet is not unreachable.
  void OnUnreachable(size_t worker) { rows_[worker].unreachable = true; }
  // A call ended at its deadline, and its response was not ready.
  void OnUnanswered(size_t worker);
  // The worker has ended a call by itself, also with an error: it does not hang.
  void OnResponded(size_t worker) { rows_[worker].unanswered = 0; }
  // Takes what a worker reports of one of its connections to us, which our port identifies: counts since the connection
  // was made. Returns what is new in them.
  struct Reported {
    uint64_t retransmits = 0;
    uint64_t rtos = 0;
  };
  Reported OnReport(size_t worker, uint16_t port, const Reported& counts);

  // The connection to a worker and what the worker owes, at `now` or a little later.
  struct Socket {
    size_t worker = 0;
    TcpSocket tcp;
    WorkerLoad load;
  };
  // A look at all sockets, in slices: ten thousand at once would stop the link's thread for 10 ms and more. A socket is
  // in one slice. lossy_workers counts losses that were seen since `settled`, and worst_out_of_order those since
  // `counted_since`, in all looks with the same `counted_since`. The losses that a look sees count as seen at its
  // begin.
  void BeginLook(TimePoint now, TimePoint settled, TimePoint counted_since);
  void LookAt(TimePoint now, absl::Span<const Socket> sockets);
  LinkSight EndLook();

  // Of the workers that are wanted. `load_of` returns the load of a worker of the schedule.
  std::vector<WorkerSummary> Summaries(absl::FunctionRef<WorkerLoad(uint32_t schedule_id)> load_of) const;
  // The same of those with evidence that they are at fault. The next call returns only the evidence that is new then.
  std::vector<WorkerFaults::Sight> TakeFaultSights(absl::FunctionRef<WorkerLoad(uint32_t schedule_id)> load_of);

 private:
  struct Row {
    WorkerSummary summary;
    uint64_t generation = 0;
    int users = 0;                      // 0: gone, or free
    std::list<size_t>::iterator place;  // in gone_
    int connections = 0;
    std::optional<TimePoint> lost_at;  // the last connection
    bool unreachable = false;          // since the last connection was lost, or an attempt failed
    int64_t lost_response = 0;         // number of the last one with a loss; see NumberOf
    // Number of a response that is due while nothing comes and our last bytes are not acknowledged; 0: none.
    int64_t unacknowledged_response = 0;
    int64_t pauses = 0;        // of the schedule, that were seen
    uint64_t seen_active = 0;  // number of the last look that saw it active
    TimePoint counted_since;   // out_of_order counts from here
    int64_t out_of_order = 0;  // losses
    int64_t unanswered = 0;    // calls since the last response
    // New since the last TakeFaultSights.
    bool lossy = false;
    bool paused = false;                                // a pause that was no loss
    bool hung = false;                                  // two calls or more in a row had no response
    std::deque<std::pair<uint16_t, Reported>> reports;  // by port; the last ones
  };
  // What was seen of a connection before.
  struct Seen {
    uint32_t out_of_order_packets = 0;
    uint64_t received_bytes = 0;
    uint64_t look = 0;  // number of the last look that saw it
  };

  static int64_t NumberOf(const WorkerLoad& load);
  static int64_t Lost(Row& row, int64_t response);
  void OnHeard(size_t worker, const WorkerLoad& load, const TcpInfo& info, TimePoint now);
  void CountOutOfOrder(Row& row);
  static bool IsUnacknowledged(const WorkerLoad& load, const TcpInfo& info);
  int64_t CountLossy();

  std::vector<Row> rows_;
  std::list<size_t> gone_;  // the first one has been gone for the longest time
  std::vector<size_t> free_;
  absl::flat_hash_map<std::string, size_t> by_address_;
  absl::flat_hash_map<uint64_t, Seen> seen_;  // by inode
  TimePoint settled_;
  TimePoint counted_since_;
  int64_t worst_out_of_order_ = 0;
  std::deque<std::pair<TimePoint, size_t>> lossy_;  // workers that lost lately, by the time when that was seen

  // The look that is under way, or the last one.
  uint64_t looks_ = 0;
  TimePoint began_;
  LinkSight sight_;
  absl::Duration rtt_sum_;
};

}  // namespace sluice
