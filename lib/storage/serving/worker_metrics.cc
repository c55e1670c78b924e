#include "lib/storage/serving/worker_metrics.h"

#include "lib/telemetry/metric_families.h"
#include "prometheus/registry.h"

namespace sluice {
namespace {

constexpr std::array<const char*, 7> kOutcomes = {"ok",        "not_found", "out_of_range", "invalid",
                                                  "cancelled", "data_loss", "error"};

}  // namespace

WorkerOutcome OutcomeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return WorkerOutcome::kOk;
    case absl::StatusCode::kNotFound:
      return WorkerOutcome::kNotFound;
    case absl::StatusCode::kOutOfRange:
      return WorkerOutcome::kOutOfRange;
    case absl::StatusCode::kInvalidArgument:
      return WorkerOutcome::kInvalid;
    case absl::StatusCode::kCancelled:
      return WorkerOutcome::kCancelled;
    case absl::StatusCode::kDataLoss:
      return WorkerOutcome::kDataLoss;
    default:
      return WorkerOutcome::kError;
  }
}

WorkerMetrics::WorkerMetrics(prometheus::Registry& registry)
    : sru_requests_(MakeCounters(registry, "sluice_worker_sru_requests_total", "SRU requests that have ended.",
                                 "outcome", kOutcomes)),
      manifest_requests_(MakeCounters(registry, "sluice_worker_manifest_requests_total",
                                      "Manifest requests that were answered.", "outcome", kOutcomes)),
      sent_bytes_(MakeCounter(registry, "sluice_worker_sent_bytes_total", "Payload bytes of the SRUs answered.")),
      silent_disks_(prometheus::BuildGauge()
                        .Name("sluice_worker_silent_disks")
                        .Help("Data folders whose disk has not completed a read in time.")
                        .Register(registry)
                        .Add({})),
      read_seconds_(MakeHistogram(registry, "sluice_worker_read_seconds", "Time to read a range of a stripe from disk.",
                                  TransferTimeBuckets())) {
  MakeBuildInfo(registry);
}

}  // namespace sluice
