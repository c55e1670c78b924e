#pragma once

#include <memory>

#include "absl/status/status.h"
#include "lib/link/tcp_report.h"
#include "lib/telemetry/io_thread.h"
#include "lib/telemetry/tcp_sampler.h"
#include "lib/telemetry/worker_tcp_metrics.h"

namespace sluice {

// What TCP does on the connections that a process answers SRU requests over: metrics, and reports to those who asked.
// One a worker or mid-level aggregator; thread-safe. The IoThread outlives it.
class AnswerWatch {
 public:
  explicit AnswerWatch(IoThread& io_thread);

  // OK, or why nothing can be seen: then metrics and reports stay as they are.
  const absl::Status& status() const { return status_; }
  const WorkerTcpMetrics& metrics() const { return metrics_; }
  TcpReports& reports() { return reports_; }

 private:
  WorkerTcpMetrics metrics_;
  TcpReports reports_;
  absl::Status status_;
  std::unique_ptr<TcpSampler> sampler_;  // the last: it updates the others
};

}  // namespace sluice
