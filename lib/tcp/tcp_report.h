#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "lib/tcp/tcp_socket.h"

namespace sluice {

// What a sluice-worker tells an aggregator about the connection between them, in the trailing metadata of an answer:
// only the sender of the answers knows what TCP had to repeat. Counts begin when the connection was made, so the next
// report makes good for one that is lost with its answer.
struct TcpReport {
  uint16_t port = 0;  // the aggregator's end, which names the connection to both
  uint64_t retransmits = 0;
  uint64_t rtos = 0;
  friend bool operator==(const TcpReport&, const TcpReport&) = default;
};

inline constexpr char kTcpReportKey[] = "sluice-tcp";
std::string FormatTcpReport(const TcpReport& report);            // "51234 7 1"
std::optional<TcpReport> ParseTcpReport(std::string_view text);  // nothing if `text` is not a report

// The reports that a worker has to make. There is one for each process. Thread-safe. The report of a connection is due
// when its counts have changed since the last one. So while nothing is lost no answer carries a report, and asking for
// one costs one atomic load.
class TcpReports {
 public:
  // Takes the counts of all connections of the process. Called now and then.
  void Update(absl::Span<const TcpSocket> sockets);
  // Returns the report that the next answer to a peer carries, if one is due. gRPC makes the name of the peer anew each
  // time, so `peer` is called only when there is something to report.
  std::optional<TcpReport> Take(absl::FunctionRef<std::string()> peer);

 private:
  struct Connection {
    TcpReport last;  // reported
    TcpReport now;
  };

  std::atomic<bool> due_ = false;
  std::mutex mutex_;
  absl::flat_hash_map<std::string, Connection> connections_;  // by peer, those with losses; guarded by mutex_
};

}  // namespace sluice
