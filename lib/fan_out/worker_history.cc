#include "lib/fan_out/worker_history.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"

namespace sluice {
namespace {

constexpr absl::Duration kFirstPause = absl::Seconds(1);
constexpr absl::Duration kMaxPause = absl::Seconds(30);
// A new time counts for an eighth, as in TCP's smoothed round-trip time (RFC 6298). One slow response changes the mean
// little; a dozen change it.
constexpr int kMeanOf = 8;

}  // namespace

void WorkerHistory::Use(size_t worker, uint64_t generation) {
  if (worker >= workers_.size()) workers_.resize(worker + 1);
  if (workers_[worker].generation != generation) workers_[worker] = {.generation = generation};
}

void WorkerHistory::OnReady(TimePoint /*now*/, size_t worker, absl::Duration time_to_ready) {
  std::optional<absl::Duration>& mean = workers_[worker].time_to_ready;
  mean = mean.has_value() ? *mean + (time_to_ready - *mean) / kMeanOf : time_to_ready;
}

void WorkerHistory::OnResponse(TimePoint /*now*/, size_t worker) {
  workers_[worker].pause = absl::ZeroDuration();
  workers_[worker].on_trial = false;
}

// Attempts that overlap in time fail together, and count as one failure. Therefore a failure during the pause does not
// make the pause longer, unless it is the trial's.
void WorkerHistory::OnFailed(TimePoint now, size_t worker) {
  Worker& state = workers_[worker];
  if (Bad(now, worker) && !state.on_trial) return;
  state.pause = std::clamp(state.pause * 2, kFirstPause, kMaxPause);
  state.bad_until = now + absl::ToChronoNanoseconds(state.pause);
  state.on_trial = false;
}

bool WorkerHistory::Bad(TimePoint now, size_t worker) const {
  return workers_[worker].pause > absl::ZeroDuration() && now < workers_[worker].bad_until;
}

std::optional<absl::Duration> WorkerHistory::TimeToReady(size_t worker) const {
  return workers_[worker].time_to_ready;
}

std::vector<size_t> WorkerHistory::Order(TimePoint now, std::vector<size_t> workers,
                                         absl::FunctionRef<bool(size_t worker)> is_ejected) {
  if (workers.empty()) return workers;
  absl::Duration total;
  int known = 0;
  for (size_t worker : workers) {
    if (const auto& time = workers_[worker].time_to_ready; time.has_value()) {
      total += *time;
      ++known;
    }
  }
  const absl::Duration mean = known > 0 ? total / known : absl::ZeroDuration();
  const size_t primary = workers.front();
  absl::c_stable_sort(workers, [&](size_t a, size_t b) {
    const bool ejected = is_ejected(a);
    if (ejected != is_ejected(b)) return !ejected;
    const bool bad = Bad(now, a);
    if (bad != Bad(now, b)) return !bad;
    if (bad) return workers_[a].bad_until < workers_[b].bad_until;
    if ((a == primary) != (b == primary)) return a == primary;
    return workers_[a].time_to_ready.value_or(mean) < workers_[b].time_to_ready.value_or(mean);
  });
  // Allow one trial per pause, even if this trial is cancelled and shows nothing.
  if (Worker& first = workers_[workers.front()]; first.pause > absl::ZeroDuration() && now >= first.bad_until) {
    first.bad_until = now + absl::ToChronoNanoseconds(first.pause);
    first.on_trial = true;
  }
  return workers;
}

}  // namespace sluice
