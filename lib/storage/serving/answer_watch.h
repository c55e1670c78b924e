#pragma once

#include <memory>

#include "absl/status/status.h"
#include "lib/net/io_thread.h"
#include "lib/storage/serving/worker_tcp_metrics.h"
#include "lib/tcp/tcp_report.h"
#include "lib/tcp/tcp_sampler.h"

namespace sluice {

// Samples the TCP connections over which a process responds to SRU requests, for metrics and for reports to the
// aggregators. There is one for each worker or mid-level aggregator. Thread-safe. The IoThread must outlive it.
class AnswerWatch {
 public:
  explicit AnswerWatch(IoThread& io_thread);

  // Returns OK, or the reason why the kernel gives no data; then metrics and reports stay as they are.
  const absl::Status& status() const { return status_; }
  const WorkerTcpMetrics& metrics() const { return metrics_; }
  TcpReports& reports() { return reports_; }

 private:
  WorkerTcpMetrics metrics_;
  TcpReports reports_;
  absl::Status status_;
  std::unique_ptr<TcpSampler> sampler_;  // last, since it updates the other members
};

}  // namespace sluice
