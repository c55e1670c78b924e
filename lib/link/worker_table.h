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

// The observations of one look at the link's connections since the previous look.
struct LinkSight {
  int64_t connections = 0;                     // for calls
  std::optional<absl::Duration> min_rtt;       // smallest of all connections, and of the tunnels of the look
  std::optional<absl::Duration> smoothed_rtt;  // mean of all connections
  uint64_t received_bytes = 0;
  uint64_t out_of_order_packets = 0;
  // Losses: at most one for each response, counted at its first evidence.
  int64_t losses_out_of_order = 0;
  int64_t losses_silent = 0;
  int64_t losses_paused = 0;  // suspected losses: the worker may also have paused
  int64_t rto_waits = 0;      // silences as long as a retransmission timeout, including the paused ones
  // Workers that have calls, or sent bytes; while lossy_workers are counted, also those that did since the first loss.
  int64_t active_workers = 0;
  // Workers with a silence caused by the network. Silences that end within half a second count together, since the
  // timeouts of a full buffer end one after the other.
  int64_t lossy_workers = 0;
  int64_t worst_out_of_order = 0;  // the largest losses_out_of_order of one worker
  // The workers, as the schedule numbers them, that are silent now although our last bytes are unacknowledged, or that
  // sent packets out of order.
  std::vector<uint32_t> lossy_now;
};

// Tracks each worker of one link: how long its responses take, and which of them lost packets on the way. It infers
// losses from the sockets of this process, and from the bytes that the schedule has granted, so it works with any
// workers. There is one for each link, used on the link's thread only. docs/internals/losses.md has the reason for each
// rule.
//
// A loss shows in one of two ways. If later packets arrive, they are out of order. If nothing arrives, the connection
// is silent although bytes should come. If the last bytes sent to the worker are also not acknowledged, the network
// lost packets, or the whole host paused. If they are acknowledged, and the worker owes bytes, there are two possible
// causes: the last packets of a response were lost, or the process of the worker paused. These two look the same.
//
// The connection of a scheduled tunnel gives the same evidence. Each of its turns is a response.
//
// A worker that is only slow owes nothing, and acknowledges the request within TCP's delay of 40 ms. A worker that
// responded at once has put the acknowledgement into the lost packets. Silence counts only once the worker sends again:
// a dead host looks the same, and is not congestion.
class WorkerTable {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // The maximum number of rows of removed workers, which may come back. Above it the worker that was removed first is
  // dropped. Rejected: a time limit. If a hundred pods a second come and go, they fill any table before it expires.
  static constexpr size_t kMaxGone = 1000;

  // Returns the row of a worker, always the same row for the same address. A worker stays wanted until Remove was
  // called as often as Add; then it is removed.
  size_t Add(const std::string& address);
  // Returns the row that was dropped, if any: a different worker may reuse it. The schedule has no call of a removed
  // worker, since a call keeps its worker.
  std::optional<size_t> Remove(size_t worker);
  // The number of workers that used the row before.
  uint64_t generation(size_t worker) const { return rows_[worker].generation; }
  bool IsWanted(const std::string& address) const;
  // The id of this row's worker in the link's schedule, where 0 is an unknown worker.
  static uint32_t ScheduleId(size_t worker) { return static_cast<uint32_t>(worker) + 1; }

  // A connection to the worker was established, was lost, or no longer matters. OnConnected returns the time without a
  // connection, if one was lost before.
  std::optional<absl::Duration> OnConnected(size_t worker, TimePoint now);
  void OnLost(size_t worker, TimePoint now);
  void OnForgotten(size_t worker);
  // Counts of wanted workers.
  struct Reach {
    int64_t wanted = 0;
    int64_t connected = 0;
  };
  Reach CountReached() const;

  // Records the times of a response that has arrived.
  void OnArrived(size_t worker, absl::Duration ready_after, absl::Duration transfer);
  // An attempt to connect failed. Before the first failed attempt, a worker without a connection is not unreachable.
  void OnUnreachable(size_t worker) { rows_[worker].unreachable = true; }
  // A call reached its deadline before its response was ready.
  void OnUnanswered(size_t worker);
  // The worker ended a call itself, even if with an error: it does not hang.
  void OnResponded(size_t worker) { rows_[worker].unanswered = 0; }
  // A group of workers that replace one another has ejected the worker, or it has returned; see WorkerEjections.
  void OnEjected(size_t worker) { ++rows_[worker].ejections; }
  void OnReturned(size_t worker) { --rows_[worker].ejections; }
  // Takes a worker's report of one of its connections to this process, identified by our port. The counts start with
  // the connection. Returns their increase since the last report.
  struct Reported {
    uint64_t retransmits = 0;
    uint64_t rtos = 0;
  };
  Reported OnReport(size_t worker, uint16_t port, const Reported& counts);

  // The last observation of a connection.
  struct Seen {
    uint32_t out_of_order_packets = 0;
    uint64_t received_bytes = 0;
    uint64_t look = 0;  // number of the last look that included it
  };
  // The losses of the calls to one worker, or of one tunnel, that were seen.
  struct Losses {
    int64_t lost_response = 0;  // number of the last response with a loss; see NumberOf
    // The number of a response that is due while the worker is silent and our last bytes are unacknowledged; 0: none.
    int64_t unacknowledged_response = 0;
    int64_t pauses = 0;  // pauses of the load
  };
  // The connection of a scheduled tunnel, which keeps this from one look to the next.
  struct Tunnel {
    Seen seen;
    Losses losses;
  };
  // The connection to a worker and the bytes that the worker owes, at `now` or a little later.
  struct Socket {
    size_t worker = 0;
    TcpSocket tcp;
    WorkerLoad load;           // what the worker owes on its calls, or in the tunnel
    Tunnel* tunnel = nullptr;  // null: the connection carries calls
  };
  // A look at all sockets, in slices: a look at ten thousand sockets at once would stop the link's thread for at least
  // 10 ms. Each socket belongs to one slice. lossy_workers counts losses seen since `settled`. worst_out_of_order
  // counts losses seen since `counted_since`, over all looks with the same `counted_since`. The losses of a look count
  // as seen at its start. LookAt may also come between two looks, for a tunnel that ends: the next look then reports
  // it.
  void BeginLook(TimePoint now, TimePoint settled, TimePoint counted_since);
  void LookAt(TimePoint now, absl::Span<const Socket> sockets);
  LinkSight EndLook();

  // The summaries of the wanted workers. `load_of` returns the load of a worker of the schedule.
  std::vector<WorkerSummary> Summaries(absl::FunctionRef<WorkerLoad(uint32_t schedule_id)> load_of) const;
  // The wanted workers with evidence of faults. Clears the recorded evidence, so the next call returns only new
  // evidence.
  std::vector<WorkerFaults::Sight> TakeFaultSights(absl::FunctionRef<WorkerLoad(uint32_t schedule_id)> load_of);

 private:
  struct Row {
    WorkerSummary summary;
    uint64_t generation = 0;
    int users = 0;                      // 0: removed, or free
    std::list<size_t>::iterator place;  // in gone_
    int connections = 0;
    std::optional<TimePoint> lost_at;  // the time when the last connection was lost
    bool unreachable = false;          // since the last connection was lost, or an attempt failed
    Losses losses;                     // the losses of its calls
    uint64_t seen_active = 0;          // number of the last look that found the worker active
    TimePoint counted_since;           // out_of_order counts from here
    int64_t out_of_order = 0;          // losses
    int64_t unanswered = 0;            // calls since the last response
    int64_t ejections = 0;             // groups that have ejected it
    // New since the last TakeFaultSights.
    bool lossy = false;
    bool paused = false;                                // a pause that was not a loss
    bool hung = false;                                  // two or more consecutive calls had no response
    std::deque<std::pair<uint16_t, Reported>> reports;  // by port; the last reports
  };

  static int64_t NumberOf(const WorkerLoad& load);
  static int64_t Lost(Row& row, Losses& losses, int64_t response);
  void OnHeard(const Socket& socket, Losses& losses, TimePoint now);
  void CountOutOfOrder(Row& row);
  static bool IsUnacknowledged(const WorkerLoad& load, const TcpInfo& info);
  int64_t CountLossy();

  std::vector<Row> rows_;
  std::list<size_t> gone_;  // the worker at the front was removed first
  std::vector<size_t> free_;
  absl::flat_hash_map<std::string, size_t> by_address_;
  absl::flat_hash_map<uint64_t, Seen> seen_;  // connections for calls, by inode
  TimePoint settled_;
  TimePoint counted_since_;
  int64_t worst_out_of_order_ = 0;
  struct Loss {
    TimePoint time;  // when the look began that saw it
    uint64_t look = 0;
    size_t worker = 0;
  };
  std::deque<Loss> lossy_;  // recent silences caused by the network

  // The current look, or the next one.
  uint64_t looks_ = 1;
  TimePoint began_;
  LinkSight sight_;
  absl::Duration rtt_sum_;
};

}  // namespace sluice
