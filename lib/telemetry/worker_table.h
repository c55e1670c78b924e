#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lib/telemetry/tcp_socket.h"
#include "lib/telemetry/worker_summary.h"

namespace sluice {

// What a look at the link's connections has shown since the look before.
struct LinkSight {
  int64_t connections = 0;
  std::optional<absl::Duration> min_rtt;       // of all of them
  std::optional<absl::Duration> smoothed_rtt;  // mean
  uint64_t received_bytes = 0;                 // TCP payload
  uint64_t out_of_order_packets = 0;
  // Loss episodes: at most one for each answer, by what told of it first.
  int64_t losses_out_of_order = 0;
  int64_t losses_silent = 0;
  int64_t rto_waits = 0;  // answers that wait, or waited, for a retransmission timeout of their worker
};

// What the aggregator sees of each worker of one link: how long answers take, and which of them were lost on the way,
// with nothing but the aggregator's own sockets to go by, so that it works with workers of any make. One a link; for
// the link's thread only. docs/losses.md says why each rule is as it is.
//
// A loss shows in one of two ways. Where something behind it still arrives, packets are out of order. Where nothing
// does, the connection is silent although an answer should come, and the silence is the network's and not the worker's
// when a part of the answer has come, or when what we sent last is not acknowledged: a worker that is only slow
// sends nothing but a ping, and acknowledges the request within TCP's delay of 40 ms; one that answered at once has put
// the acknowledgement into the packets that were lost. Silence only counts once the worker is heard again: a host that
// is dead looks the same, and is no congestion.
class WorkerTable {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // A place for the worker; the same one for the same address. The worker is wanted until it was removed as often; its
  // place stays.
  size_t Add(const std::string& address);
  void Remove(size_t worker);

  // A connection to the worker stands, was lost, or is of no interest any more, as each of those that keep one sees it.
  // Returns how long there had been none, where one was lost before.
  std::optional<absl::Duration> OnConnected(size_t worker, TimePoint now);
  void OnLost(size_t worker, TimePoint now);
  void OnForgotten(size_t worker);
  // Of the workers that are wanted.
  struct Reach {
    int64_t wanted = 0;
    int64_t connected = 0;
  };
  Reach CountReached() const;

  // An answer may come from now on: it was granted, or its request has left and nothing holds it back. `in_parts`: it
  // is a stream, which may pause without anything being lost.
  void OnAsked(size_t worker, TimePoint now, bool in_parts);
  // Of a call that OnAsked has told of: the bytes of its answer that have come.
  void OnEnded(size_t worker, TimePoint now, int64_t answer_bytes);
  // Times of an answer that has come.
  void OnAnswered(size_t worker, absl::Duration ready_after, absl::Duration transfer);
  // What the worker itself says of one of its connections to us, named by our port: counts since it was made. Returns
  // what is new in them.
  struct Reported {
    uint64_t retransmits = 0;
    uint64_t rtos = 0;
  };
  Reported OnReport(size_t worker, uint16_t port, const Reported& counts);

  // The connection to a worker, as it was at `now` or a little later.
  struct Socket {
    size_t worker = 0;
    TcpSocket tcp;
  };
  LinkSight Look(TimePoint now, absl::Span<const Socket> sockets);

  std::vector<WorkerSummary> Summaries() const;  // of the workers that are wanted

 private:
  struct Row {
    WorkerSummary summary;
    int users = 0;  // 0: not wanted
    int connections = 0;
    std::optional<TimePoint> lost_at;  // the last connection
    TimePoint waiting_since;  // the last time that an answer was asked for or ended; means something while in flight
    bool in_parts = false;
    int64_t ended = 0;
    // What has come of answers that have not ended, at the last look; and what has ended since then.
    int64_t pending_bytes = 0;
    int64_t ended_bytes = 0;
    // The answer that was last found to be lost, or to wait, by its number. Answers are numbered as they end.
    int64_t lost_answer = 0;
    int64_t waiting_answer = 0;
    bool silent = false;  // the answer that waits has not been heard of since
    absl::flat_hash_map<uint16_t, Reported> reported;

    int64_t CurrentAnswer() const { return ended + (summary.in_flight > 0 ? 1 : 0); }
  };
  // What was seen of a connection before.
  struct Seen {
    uint32_t out_of_order_packets = 0;
    uint64_t received_bytes = 0;
  };

  static bool Lost(Row& row, int64_t answer);
  static void SetPending(Row& row, uint64_t received_bytes, TimePoint now);
  static bool WaitsForRto(const Row& row, const TcpInfo& info, TimePoint now);

  std::vector<Row> rows_;
  absl::flat_hash_map<std::string, size_t> by_address_;
  absl::flat_hash_map<uint64_t, Seen> seen_;  // by inode
};

}  // namespace sluice
