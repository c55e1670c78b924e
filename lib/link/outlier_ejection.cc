#include "lib/link/outlier_ejection.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/scheduling/saturating_add.h"

namespace sluice {
namespace {

using std::chrono::nanoseconds;

// A smaller difference is not worth an ejection.
constexpr std::chrono::milliseconds kLeastDifference{10};
// Most responses of a healthy worker come within this.
constexpr int kGivenUpMedians = 2;
// A worker may stand still for less than this, such as for garbage collection.
constexpr std::chrono::seconds kNoResponse{1};
constexpr std::chrono::seconds kMedianEvery{1};
constexpr std::chrono::milliseconds kFirstMedianEvery{10};
// Two workers show a median: the lower of the two.
constexpr size_t kLeastForMedian = 2;
// A new time counts for an eighth, as in WorkerHistory.
constexpr int kMeanOf = 8;
constexpr int64_t kPercent = 100;

absl::Status CheckPercent(absl::string_view field, int64_t value) {
  if (value >= 0 && value <= kPercent) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", value, " is outside of 0 to ", kPercent));
}

absl::Status CheckTime(absl::string_view field, absl::Duration value) {
  if (value > absl::ZeroDuration()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", absl::FormatDuration(value), " is not above 0"));
}

}  // namespace

absl::Status OutlierDetection::Validate() const {
  absl::Status status;
  if (consecutive_errors < 0) {
    status = absl::InvalidArgumentError(absl::StrCat("consecutive_errors: ", consecutive_errors, " is below 0"));
  }
  status.Update(CheckPercent("failure_percentage_threshold", failure_percentage_threshold));
  if (latency_factor != 0 && !(latency_factor > 1)) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("latency_factor: ", latency_factor, " is neither above 1 nor 0, which means never")));
  }
  if (request_volume < 1) {
    status.Update(absl::InvalidArgumentError(absl::StrCat("request_volume: ", request_volume, " is below 1")));
  }
  status.Update(CheckTime("interval", interval));
  status.Update(CheckTime("base_ejection_time", base_ejection_time));
  status.Update(CheckTime("max_ejection_time", max_ejection_time));
  status.Update(CheckPercent("max_ejection_percent", max_ejection_percent));
  return status;
}

// Envoy counts the same statuses: 5xx in HTTP. UNIMPLEMENTED is left out, because every worker returns it then.
bool IsWorkerFailure(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDataLoss:
      return true;
    default:
      return false;
  }
}

void OutlierEjection::SetWorkers(absl::Span<const size_t> workers, Changes& changes) {
  absl::flat_hash_map<size_t, Worker> known = std::exchange(workers_, {});
  order_.clear();
  for (size_t id : workers) {
    const auto found = known.find(id);
    if (!workers_.try_emplace(id, found == known.end() ? Worker() : found->second).second) continue;
    order_.push_back(id);
    if (found != known.end()) known.erase(found);
  }
  for (auto& [id, worker] : known) {
    if (worker.ejected_until.has_value()) Return(id, worker, changes);
  }
  ReturnExcess(changes);
}

// Fewer workers may be ejected than before: the workers or the options have changed. Those return first whose time is
// over first.
void OutlierEjection::ReturnExcess(Changes& changes) {
  while (ejected_ > MaxEjected()) {
    std::optional<size_t> first;
    for (size_t id : order_) {
      const std::optional<TimePoint> until = workers_[id].ejected_until;
      if (until.has_value() && (!first.has_value() || *until < *workers_[*first].ejected_until)) first = id;
    }
    Return(*first, workers_[*first], changes);
  }
}

size_t OutlierEjection::MaxEjected() const {
  const size_t workers = order_.size();
  if (options_.max_ejection_percent == 0 || workers == 0) return 0;
  const size_t share = workers * static_cast<size_t>(options_.max_ejection_percent) / kPercent;
  return std::min(workers - 1, std::max<size_t>(share, workers > 2 ? 1 : 0));
}

void OutlierEjection::OnEnded(TimePoint now, const Call& call, Changes& changes) {
  ReturnExcess(changes);
  const auto found = workers_.find(call.worker);
  if (found == workers_.end()) return;
  EndInterval(now, changes);
  FindMedian(now);
  Worker& worker = found->second;
  if (worker.ejected_until.has_value()) return OnProbed(now, call, worker, changes);
  if (call.end == End::kGivenUp && !HasWaited(call.took)) return;
  ++worker.calls;
  if (call.end == End::kFailed) {
    ++worker.failed_calls;
  } else {
    ++worker.timed_calls;
    worker.took += call.took;
  }
  if (call.end == End::kResponded) {
    worker.failures = 0;
    const nanoseconds mean = worker.mean_time.value_or(call.took);
    worker.mean_time = mean + (call.took - mean) / kMeanOf;
    return;
  }
  CountFailure(call, now, worker);
  if (const auto why = WhyByFailures(now, worker)) Eject(now, call.worker, worker, *why, changes);
}

void OutlierEjection::CountFailure(const Call& call, TimePoint now, Worker& worker) {
  if (worker.failures == 0) {
    worker.all_failed = true;
    worker.first_failed = call.sent;
  } else if (call.sent < worker.last_failed) {
    return;
  }
  ++worker.failures;
  worker.last_failed = now;
  if (call.end == End::kGivenUp) worker.all_failed = false;
}

std::optional<EjectionReason> OutlierEjection::WhyByFailures(TimePoint now, const Worker& worker) const {
  if (options_.consecutive_errors == 0 || worker.failures < options_.consecutive_errors) return std::nullopt;
  if (worker.all_failed) return EjectionReason::kErrors;
  if (now - worker.first_failed < kNoResponse) return std::nullopt;
  return EjectionReason::kNoResponse;
}

std::optional<EjectionReason> OutlierEjection::WhyByInterval(const Worker& worker) const {
  if (worker.calls < options_.request_volume) return std::nullopt;
  const int64_t threshold = options_.failure_percentage_threshold;
  if (threshold > 0 && worker.failed_calls * kPercent >= threshold * worker.calls) {
    return EjectionReason::kFailurePercentage;
  }
  if (worker.timed_calls >= options_.request_volume && IsSlow(worker.took / worker.timed_calls)) {
    return EjectionReason::kLatency;
  }
  return std::nullopt;
}

// Without calls there are no events. Intervals without an event pass together with the next one.
void OutlierEjection::EndInterval(TimePoint now, Changes& changes) {
  if (!interval_began_.has_value()) interval_began_ = now;
  const auto interval = absl::ToChronoNanoseconds(options_.interval);
  const int64_t passed = (now - *interval_began_) / std::max(interval, nanoseconds(1));
  if (passed == 0) return;
  *interval_began_ += passed * interval;
  for (size_t id : order_) {
    Worker& worker = workers_[id];
    if (worker.ejected_until.has_value()) continue;
    worker.ejections -= std::min(worker.ejections, passed);
    const std::optional<EjectionReason> why = WhyByInterval(worker);
    worker.calls = worker.failed_calls = worker.timed_calls = 0;
    worker.took = nanoseconds(0);
    if (why.has_value()) Eject(now, id, worker, *why, changes);
  }
}

// Calls that were sent during the ejection, since no other worker could answer them, show nothing new.
void OutlierEjection::OnProbed(TimePoint now, const Call& call, Worker& worker, Changes& changes) {
  if (call.sent < *worker.ejected_until) return;
  if (call.end == End::kResponded && !IsSlow(call.took)) {
    worker.mean_time = call.took;
    Return(call.worker, worker, changes);
  } else if (call.end != End::kGivenUp || HasWaited(call.took)) {
    Eject(now, call.worker, worker, EjectionReason::kProbe, changes);
  } else {
    worker.probe_chosen.reset();
  }
}

void OutlierEjection::Eject(TimePoint now, size_t id, Worker& worker, EjectionReason reason, Changes& changes) {
  if (!worker.ejected_until.has_value()) {
    if (ejected_ >= MaxEjected()) return;
    ++ejected_;
  }
  const absl::Duration longest = std::max(options_.base_ejection_time, options_.max_ejection_time);
  if (worker.ejections * options_.base_ejection_time < longest) ++worker.ejections;
  const absl::Duration time = std::min(worker.ejections * options_.base_ejection_time, longest);
  worker = {.ejections = worker.ejections, .ejected_until = SaturatingAdd(now, absl::ToChronoNanoseconds(time))};
  changes.push_back({.worker = id, .ejected = reason});
}

void OutlierEjection::Return(size_t id, Worker& worker, Changes& changes) {
  worker.ejected_until.reset();
  worker.probe_chosen.reset();
  --ejected_;
  changes.push_back({.worker = id});
}

bool OutlierEjection::IsAvoided(TimePoint now, size_t worker) const {
  if (ejected_ == 0) return false;
  const auto found = workers_.find(worker);
  if (found == workers_.end() || !found->second.ejected_until.has_value()) return false;
  if (now < *found->second.ejected_until) return true;
  const auto& probe = found->second.probe_chosen;
  return probe.has_value() && now - *probe < absl::ToChronoNanoseconds(options_.interval);
}

void OutlierEjection::OnChosen(TimePoint now, size_t worker) {
  if (ejected_ == 0 || IsAvoided(now, worker)) return;
  const auto found = workers_.find(worker);
  if (found != workers_.end() && found->second.ejected_until.has_value()) found->second.probe_chosen = now;
}

void OutlierEjection::FindMedian(TimePoint now) {
  const nanoseconds every = median_.has_value() ? nanoseconds(kMedianEvery) : nanoseconds(kFirstMedianEvery);
  if (median_found_.has_value() && now - *median_found_ < every) return;
  median_found_ = now;
  std::vector<nanoseconds> times;
  for (const auto& [id, worker] : workers_) {
    if (!worker.ejected_until.has_value() && worker.mean_time.has_value()) times.push_back(*worker.mean_time);
  }
  median_.reset();
  if (times.size() < kLeastForMedian) return;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>((times.size() - 1) / 2);
  std::nth_element(times.begin(), middle, times.end());
  median_ = *middle;
}

// Rejected: the bound of IsSlow. Hedges give a call up after two or three medians, and a hung worker would stay.
bool OutlierEjection::HasWaited(nanoseconds time) const {
  return median_.has_value() && time > kGivenUpMedians * *median_;
}

bool OutlierEjection::IsSlow(nanoseconds time) const {
  if (options_.latency_factor == 0 || !median_.has_value()) return false;
  const nanoseconds bound(static_cast<int64_t>(static_cast<double>(median_->count()) * options_.latency_factor));
  return time > std::max<nanoseconds>(bound, *median_ + kLeastDifference);
}

}  // namespace sluice
