#pragma once

#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "lib/net/io_thread.h"
#include "lib/storage/blocks/block_cache.h"
#include "lib/storage/blocks/mid_level_metrics.h"
#include "lib/storage/blocks/reader_source.h"
#include "lib/storage/serving/answer_watch.h"
#include "lib/storage/serving/mid_level_server.h"
#include "lib/storage/serving/worker_metrics.h"
#include "prometheus/registry.h"

namespace sluice {

// The parts that a mid-level aggregator of a tree needs in addition, as a worker of the level above. There is at most
// one for each process. Thread-safe. The registry and the IoThread must outlive it; it must outlive the grpc::Server.
class MidLevel {
 public:
  struct Options {
    int64_t cache_bytes = 64 << 20;
    absl::Duration deadline_reserve = absl::Milliseconds(5);
  };

  MidLevel(const Options& options, const ReaderSource& reader, prometheus::Registry& registry, IoThread& io_thread,
           std::shared_ptr<AccessControl> access);

  grpc::Service& service() { return server_; }
  // Further metrics, which are not in the registry.
  const prometheus::Collectable& tcp_metrics() const { return answer_watch_.metrics(); }

 private:
  WorkerMetrics worker_metrics_;
  MidLevelMetrics metrics_;
  AnswerWatch answer_watch_;
  BlockCache cache_;
  MidLevelServer server_;
};

}  // namespace sluice
