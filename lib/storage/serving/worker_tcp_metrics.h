#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "lib/tcp/socket_diag.h"
#include "lib/tcp/tcp_socket.h"
#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"

namespace sluice {

// The TCP events of this worker's responses. There is one for each process. Thread-safe. There are two sources, which
// the help texts distinguish: the connections of this process, and the counters of its network namespace. Families that
// the kernel cannot fill are left out: all of them if it gives no data, and the timeouts before Linux 6.7.
//
// Each Collect queries the kernel, so a scrape shows the current values. A closed connection loses its counts since the
// last look; regular calls of Update keep that loss small.
class WorkerTcpMetrics : public prometheus::Collectable {
 public:
  WorkerTcpMetrics();

  void Update(absl::Span<const TcpSocket> sockets);
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  struct Counts {
    uint64_t retransmitted_packets = 0;
    uint64_t rtos = 0;
  };
  struct State {
    Counts totals;
    absl::flat_hash_map<uint64_t, TcpInfo> last;  // by inode
    bool has_rtos = false;
  };

  static void Add(absl::Span<const TcpSocket> sockets, State& state);

  mutable absl::Mutex mutex_;
  mutable std::optional<SocketDiag> diag_ ABSL_GUARDED_BY(mutex_);
  mutable State state_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
