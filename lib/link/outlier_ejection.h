#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/outlier_detection.h"
#include "sluice/time_point.h"

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/link/link_metrics.h"

namespace sluice {

// Decides which of the workers that replace one another are avoided, by the calls to them. There is one for each
// FanOut, BlockReader, and target of a proxy. It reads no clock. Not thread-safe. Times must never decrease.
//
// A worker is compared with the other workers, by calls of the same method alone: a method that is slow, that fails or
// that clients give up at all workers is no fault of one of them.
//
// An ejected worker is avoided until its time is over. Then one call, the probe, may choose it. If the probe succeeds,
// the worker returns; otherwise it is ejected for longer. A probe that shows nothing is repeated.
class OutlierEjection {
 public:
  // Methods that are judged. Clients choose their names.
  static constexpr size_t kMaxMethods = 64;

  // A call to a worker that has ended. It was sent, and a different worker could have answered it. kGivenUp: this side
  // ended it before its response was ready.
  enum class End { kResponded, kFailed, kGivenUp };
  // `ready`: its response was ready. `has_status`: the worker has ended it.
  static End EndOf(absl::StatusCode code, bool ready, bool has_status);
  struct Call {
    std::string_view method;
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
    int64_t ejections = 0;                   // the next one lasts for one more than this base times
    std::optional<TimePoint> ejected_until;  // set while ejected
    std::optional<TimePoint> probe_chosen;   // set while a probe is under way
  };
  // Calls with a response, and calls that have failed or were given up late.
  struct Tally {
    int64_t answered = 0;
    int64_t missed = 0;

    int64_t calls() const { return answered + missed; }
    Tally operator-(const Tally& other) const { return {answered - other.answered, missed - other.missed}; }
  };
  // The calls of one method to one worker that is not ejected.
  struct Row {
    Tally all;
    Tally interval;                                     // in the current interval
    Tally recent;                                       // in this and the previous interval
    int64_t timed_calls = 0;                            // in the current interval, without failures
    std::chrono::nanoseconds took{0};                   // by the timed calls
    std::optional<std::chrono::nanoseconds> mean_time;  // moving mean, until a response is ready
    // Since the last response or ejection, or since its first call.
    int64_t missed = 0;
    Tally others_before;                  // all calls to other workers until then
    int64_t failures = 0;                 // misses that count; calls that overlap in time count once
    bool all_failed = true;               // false: one of these was given up
    TimePoint first_failed;               // when the first of these was sent
    TimePoint last_failed;                // when the last of these ended
    int64_t answered_before_failure = 0;  // calls that other workers had answered when the last of these ended
  };
  struct Method {
    absl::flat_hash_map<size_t, Row> rows;  // by worker
    Tally all;                              // sums of all workers, also of removed ones
    Tally interval;
    Tally recent;
    TimePoint last_use;
    std::optional<TimePoint> median_found;
    size_t known_means = 0;
    std::chrono::nanoseconds median_below{0};  // of the mean times; without a mean above it, and without one below
    std::chrono::nanoseconds median_above{0};
  };

  static Tally AllOfOthers(const Method& method, const Row& row) { return method.all - row.all; }
  Method* FindMethod(TimePoint now, std::string_view name);
  static Row& RowOf(Method& method, size_t worker);
  static void Count(const Call& call, Method& method, Row& row);
  static void LeaveOut(const Row& row, Method& method);
  static void CountAnswer(const Call& call, Method& method, Row& row);
  static void CountMiss(TimePoint now, const Call& call, Method& method, Row& row);
  std::optional<EjectionReason> WhyByFailures(TimePoint now, const Method& method, const Row& row) const;
  std::optional<EjectionReason> WhyByInterval(const Method& method, const Row& row) const;
  static bool IsToBlame(const Method& method, const Row& row, int64_t failures);
  void EndInterval(TimePoint now, Changes& changes);
  void OnProbed(TimePoint now, const Call& call, Method* method, Worker& worker, Changes& changes);
  void Eject(TimePoint now, size_t id, EjectionReason reason, Changes& changes);
  void Return(size_t id, Worker& worker, Changes& changes);
  void ReturnExcess(Changes& changes);
  static void FindMedian(TimePoint now, Method& method);
  static std::optional<std::chrono::nanoseconds> MedianOfOthers(const Method& method, const Row& row);
  static bool HasWaited(const Call& call, const Method& method, const Row& row);
  bool IsSlow(std::chrono::nanoseconds time, const Method& method, const Row& row) const;

  const OutlierDetection& options_;
  std::vector<size_t> order_;  // the workers
  absl::flat_hash_map<size_t, Worker> workers_;
  std::map<std::string, Method, std::less<>> methods_;
  size_t ejected_ = 0;
  std::optional<TimePoint> interval_began_;
};

}  // namespace sluice
