#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/link/worker.h"
#include "lib/proxy/target.h"

namespace sluice {

// The way of one proxied call to its worker: its target, and the workers of the target that it has tried. There is one
// for each proxied call. Used on the link's thread only.
class CallRoute {
 public:
  void SetTarget(std::shared_ptr<Target> target) { target_ = std::move(target); }
  Target* target() const { return target_.get(); }  // null: not known

  // The next worker. Errors as Target::Pick.
  absl::StatusOr<std::shared_ptr<Worker>> Next();
  // The last worker could not be reached. Returns whether another worker of the target may be; Next then returns it.
  bool FindOther();
  // The last worker has failed with Unavailable before it has begun a response. Returns whether the call is sent to
  // another worker of the target; Next then returns it. `max_attempts` of gRPC's retry policy.
  bool FindRetry(size_t max_attempts, const RetryThrottle::Options& throttle);
  size_t retries() const { return tried_.size(); }  // retries so far
  // The pattern of the policy that matches the last worker; empty: there was none.
  const std::string& pattern() const { return pattern_; }

  // The events of the stream to the last worker.
  void OnSent(TimePoint now) {
    sent_ = now;
    ready_after_.reset();
  }
  void OnReady(std::chrono::nanoseconds ready_after) { ready_after_ = ready_after; }
  struct Ended {
    std::string_view method;
    absl::StatusCode code = absl::StatusCode::kUnknown;  // of the call
    bool has_status = false;                             // the worker has sent it
    bool link_is_late = false;                           // the worker is not to blame
  };
  // Reports to the target what the call shows about the worker, and whether it may be retried.
  void OnEnded(const Ended& ended, const RetryThrottle::Options& throttle);

 private:
  std::shared_ptr<Target> target_;
  std::optional<Target::Choice> other_;
  std::string pattern_;
  size_t unreached_ = 0;           // workers that could not be reached
  size_t row_ = 0;                 // of the last worker
  std::vector<size_t> tried_;      // the rows of the workers before it that have failed
  std::optional<TimePoint> sent_;  // to the last worker
  std::optional<std::chrono::nanoseconds> ready_after_;
};

}  // namespace sluice
