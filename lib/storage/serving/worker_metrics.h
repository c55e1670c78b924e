#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace sluice {

// The outcome of a request to a worker; label values are in worker_metrics.cc, in this order.
enum class WorkerOutcome { kOk, kNotFound, kOutOfRange, kInvalid, kCancelled, kDataLoss, kError };
WorkerOutcome OutcomeOf(const absl::Status& status);

// The metrics of a worker. There is one for each process. Thread-safe. Counting is one atomic addition; ObserveRead
// takes the mutex of its histogram. All handles are resolved once, in the constructor.
class WorkerMetrics {
 public:
  explicit WorkerMetrics(prometheus::Registry& registry);

  void CountCall(WorkerOutcome outcome) { sru_requests_[static_cast<size_t>(outcome)]->Increment(); }
  void CountManifestRequest(WorkerOutcome outcome) { manifest_requests_[static_cast<size_t>(outcome)]->Increment(); }
  // A disk was given up, or completes reads again.
  void OnDisk(bool silent) { silent ? silent_disks_.Increment() : silent_disks_.Decrement(); }
  // Counts sent bytes of SRU payload.
  void AddSentBytes(uint64_t bytes) { sent_bytes_.Increment(static_cast<double>(bytes)); }
  // Takes the duration of reading a range from the disk.
  void ObserveRead(absl::Duration elapsed) { read_seconds_.Observe(absl::ToDoubleSeconds(elapsed)); }

 private:
  const std::array<prometheus::Counter*, 7> sru_requests_;
  const std::array<prometheus::Counter*, 7> manifest_requests_;
  prometheus::Counter& sent_bytes_;
  prometheus::Gauge& silent_disks_;
  prometheus::Histogram& read_seconds_;
};

}  // namespace sluice
