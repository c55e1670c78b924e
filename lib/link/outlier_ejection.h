#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "sluice/outlier_detection.h"
#include "sluice/time_point.h"

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/link/link_metrics.h"

namespace sluice {

// Whether this status is a failure of the worker, and not the response of its application.
bool IsWorkerFailure(absl::StatusCode code);

// Decides which of the workers that replace one another are avoided, by the calls to them. There is one for each
// FanOut, BlockReader, and target of a proxy. It reads no clock. Not thread-safe. Times must never decrease.
//
// An ejected worker is avoided until its time is over. Then one call, the probe, may choose it. If the probe succeeds,
// the worker returns; otherwise it is ejected for longer. A probe without a result is repeated.
class OutlierEjection {
 public:
  // A call to a worker that has ended. It was sent, and a different worker could have answered it. kGivenUp: this side
  // ended it before its response was ready.
  enum class End { kResponded, kFailed, kGivenUp };
  static End EndOf(bool failed, bool responded) {
    if (failed) return End::kFailed;
    return responded ? End::kResponded : End::kGivenUp;
  }
  struct Call {
    size_t worker = 0;
    TimePoint sent;
    End end = End::kResponded;
    std::chrono::nanoseconds took{0};  // until the response was ready, or until the end
  };
  // A worker was ejected, or has returned. EjectionReason::kProbe: it was ejected before, and its probe failed.
  struct Change {
    size_t worker = 0;
    std::optional<EjectionReason> ejected;  // none: it has returned
  };
  using Changes = std::vector<Change>;

  // The options must outlive the object, and may change.
  explicit OutlierEjection(const OutlierDetection& options) : options_(options) {}

  // Replaces the workers. Those that stay keep their state. Ejected workers that are removed have returned.
  void SetWorkers(absl::Span<const size_t> workers, Changes& changes);
  void OnEnded(TimePoint now, const Call& call, Changes& changes);

  // Whether a call must prefer other workers.
  bool IsAvoided(TimePoint now, size_t worker) const;
  // A call chooses this worker first.
  void OnChosen(TimePoint now, size_t worker);

  size_t ejected() const { return ejected_; }
  // The maximum number of workers that may be ejected now.
  size_t MaxEjected() const;

 private:
  struct Worker {
    // Failures since the last response. Calls that overlap in time fail together, and count once.
    int64_t failures = 0;
    bool all_failed = true;  // false: one of them was given up
    TimePoint first_failed;  // when the first of them was sent
    TimePoint last_failed;   // when the last of them ended
    // Calls in the current interval.
    int64_t calls = 0;
    int64_t failed_calls = 0;
    int64_t timed_calls = 0;
    std::chrono::nanoseconds took{0};                   // by the timed calls
    std::optional<std::chrono::nanoseconds> mean_time;  // moving mean, until a response is ready
    int64_t ejections = 0;                              // the next one lasts for one more than this base times
    std::optional<TimePoint> ejected_until;             // set while ejected
    std::optional<TimePoint> probe_chosen;              // set while a probe is under way
  };

  void CountFailure(const Call& call, TimePoint now, Worker& worker);
  std::optional<EjectionReason> WhyByFailures(TimePoint now, const Worker& worker) const;
  std::optional<EjectionReason> WhyByInterval(const Worker& worker) const;
  void EndInterval(TimePoint now, Changes& changes);
  void OnProbed(TimePoint now, const Call& call, Worker& worker, Changes& changes);
  void Eject(TimePoint now, size_t id, Worker& worker, EjectionReason reason, Changes& changes);
  void Return(size_t id, Worker& worker, Changes& changes);
  void ReturnExcess(Changes& changes);
  void FindMedian(TimePoint now);
  // Whether a call that is given up after this time shows something: most calls had a response sooner.
  bool HasWaited(std::chrono::nanoseconds time) const;
  bool IsSlow(std::chrono::nanoseconds time) const;

  const OutlierDetection& options_;
  std::vector<size_t> order_;  // the workers
  absl::flat_hash_map<size_t, Worker> workers_;
  size_t ejected_ = 0;
  std::optional<TimePoint> interval_began_;
  std::optional<TimePoint> median_found_;
  std::optional<std::chrono::nanoseconds> median_;  // of the mean times of the workers that are not ejected
};

}  // namespace sluice
