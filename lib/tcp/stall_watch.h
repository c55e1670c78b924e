#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lib/tcp/tcp_socket.h"

namespace sluice {

// A time in which a connection was silent although a packet was missing. Plain value. Times count from the start of the
// watch.
struct TcpStall {
  absl::Duration begin;
  absl::Duration seen;  // when a sample showed it, at least StallWatch::kStall after its beginning
  absl::Duration end;
  uint64_t flow_bytes = 0;        // carried by all connections of the flow from `seen` to `end`
  size_t connection = 0;          // a number within the flow
  boost::asio::ip::address host;  // of the peer
};

// The bytes from other hosts to this one, or from this host to one other host: in a fan-out, the responses. Plain
// value.
struct TcpFlow {
  std::optional<boost::asio::ip::address> to;  // none: from other hosts to this one
  size_t connections = 0;                      // that carried more bytes this way than the other way
  size_t hosts = 0;                            // peers of these connections, without their ports
  uint64_t bytes = 0;
  uint64_t bursts = 0;               // times that a quiet connection began to carry bytes
  size_t most_at_once = 0;           // most connections that carried bytes in one round
  size_t busy_rounds = 0;            // rounds in which a connection carried bytes
  size_t broad_rounds = 0;           // rounds in which at least three did
  double peak_bytes_per_second = 0;  // in the best tenth of a second
  std::vector<TcpStall> stalls;      // by their beginning
  // Only of the flow to this host: times from the last bytes that this host sent until the next burst began.
  absl::Duration median_wait;        // in steps of 20 ms
  std::vector<TcpStall> long_waits;  // at least StallWatch::kLongWait, by their beginning
};

// Watches all TCP connections of a host for stalls: samples in, flows out. There is one for each diagnosis. Not
// thread-safe.
//
// A connection is stalled in two cases:
//  - Bytes that it sent are not acknowledged, and it has sent nothing for 150 ms. A sender waits for its retransmission
//    timer. A receiver has lost the whole response, and with it the acknowledgement of the request.
//  - It has packets behind a missing packet, and the missing packet has not come for 150 ms.
// A stall of a sender counts if the sender has then retransmitted: otherwise the packets have only waited in a queue.
// An idle connection, and a worker that takes long to respond, are in neither case. 150 ms lies between the longest
// delayed acknowledgement of an active connection (40 ms) and Linux' least retransmission timeout (200 ms).
//
// Rejected: to count each silence of 200 ms as a stall. Connections are also silent between two fan-outs, and a
// response that was lost as a whole, after its worker had acknowledged the request, looks like a slow one. Long waits
// for responses are therefore kept apart.
class StallWatch {
 public:
  static constexpr absl::Duration kStall = absl::Milliseconds(150);
  static constexpr absl::Duration kLongWait = absl::Milliseconds(190);

  // Watches the connections that have this port at either end. None: all connections to other hosts.
  explicit StallWatch(std::optional<uint16_t> port = std::nullopt) : port_(port) {}

  // Takes sockets as they are at `now`. Each connection is in one sample of a round, and EndRound follows the last.
  void Add(absl::Duration now, absl::Span<const TcpSocket> sockets);
  void EndRound(absl::Duration now);

  // Returns the flows that carried bytes, those to other hosts in the order of their addresses. Call it last.
  std::vector<TcpFlow> Finish(absl::Duration now);

 private:
  using Address = boost::asio::ip::address;
  // The traffic of a connection in one direction.
  struct Way {
    uint64_t bytes = 0;
    uint64_t bursts = 0;
    bool was_busy = false;                 // in the last round
    uint64_t flow_bytes_before_stall = 0;  // when the stall was seen
    std::vector<TcpStall> stalls;
    void Carry(uint64_t more_bytes, bool may_begin_burst);
  };
  struct Connection {
    TcpSocket last;
    uint64_t round = 0;  // the last round that had it
    Way received;
    Way sent;  // and acknowledged
    std::optional<TcpStall> stall;
    uint32_t retransmitted_before_stall = 0;
    std::optional<absl::Duration> waits_since;
    std::vector<TcpStall> long_waits;
  };
  struct Direction {
    TcpFlow flow;
    size_t at_once = 0;       // connections that carried bytes in this round
    std::set<Address> hosts;  // of the flow
    uint64_t bytes = 0;       // of all connections, also of those that carry most of their bytes the other way
    absl::Duration peak_begin;
    uint64_t peak_begin_bytes = 0;
    std::map<int64_t, uint64_t> waits;  // number by their length, in steps of 20 ms
    void EndRound(absl::Duration now);
  };

  void Update(Connection& connection, absl::Duration now, const TcpSocket& socket);
  void UpdateWait(Connection& connection, absl::Duration now, const TcpSocket& socket, uint64_t received);
  void BeginStall(Connection& connection, absl::Duration now, absl::Duration stalled_for);
  void EndStall(Connection& connection, absl::Duration now, const TcpInfo& info);
  void Close(Connection& connection, absl::Duration now);

  const std::optional<uint16_t> port_;
  uint64_t round_ = 1;
  absl::flat_hash_map<uint64_t, Connection> connections_;  // open ones, by inode
  // Flows with the connections that have closed. A connection belongs to the direction of most of its bytes, which is
  // known when it closes.
  Direction incoming_;
  std::map<Address, Direction> outgoing_;
};

}  // namespace sluice
