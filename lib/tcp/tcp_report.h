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

// The counts of a connection that a sluice-worker sends to its aggregator in the trailing metadata of a response: only
// the sender of the responses has TCP's retransmission counts. Counts begin when the connection was made, so the next
// report replaces a report that is lost with its response.
struct TcpReport {
  uint16_t port = 0;  // the aggregator's port, which identifies the connection to both sides
  uint64_t retransmits = 0;
  uint64_t rtos = 0;
  friend bool operator==(const TcpReport&, const TcpReport&) = default;
};

inline constexpr char kTcpReportKey[] = "sluice-tcp";
std::string FormatTcpReport(const TcpReport& report);            // "51234 7 1"
std::optional<TcpReport> ParseTcpReport(std::string_view text);  // nothing if `text` is not a report

// The pending reports of a worker. There is one object for each process. Thread-safe. The report of a connection is due
// when its counts have changed since the last report. While no packet is lost, no response carries a report, and the
// check costs one atomic load.
class TcpReports {
 public:
  // Updates the counts of all connections of the process. Called periodically.
  void Update(absl::Span<const TcpSocket> sockets);
  // Returns the report that the next response to a peer carries, if one is due. gRPC builds the name of the peer on
  // each call, so `peer` is called only when a report is due.
  std::optional<TcpReport> Take(absl::FunctionRef<std::string()> peer);

 private:
  struct Connection {
    TcpReport last;  // reported
    TcpReport now;
  };

  std::atomic<bool> due_ = false;
  std::mutex mutex_;
  absl::flat_hash_map<std::string, Connection> connections_;  // connections with losses, by peer; guarded by mutex_
};

}  // namespace sluice
