#include "lib/link/outlier_ejection.h"

#include <algorithm>
#include <cmath>
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
// A new time counts for an eighth, as in WorkerHistory.
constexpr int kMeanOf = 8;
constexpr int64_t kPercent = 100;
// A worker is to blame if its failures in a row are as unlikely as if one call in this number fails.
constexpr double kRareFailure = 64;

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

// Envoy and gRFC A50 count the same failures, and DEADLINE_EXCEEDED: that is the client's patience. Other statuses are
// the response of the application.
OutlierEjection::End OutlierEjection::EndOf(absl::StatusCode code, bool ready, bool has_status) {
  switch (code) {
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDataLoss:
      return End::kFailed;
    case absl::StatusCode::kDeadlineExceeded:
      return ready ? End::kResponded : End::kGivenUp;
    default:
      return ready || has_status ? End::kResponded : End::kGivenUp;
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
  for (auto& [name, method] : methods_) {
    absl::erase_if(method.rows, [this, &method = method](const auto& row) {
      const bool removed = !workers_.contains(row.first);
      if (removed) LeaveOut(row.second, method);
      return removed;
    });
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
  return std::min(workers - 1, std::max<size_t>(share, 1));
}

void OutlierEjection::OnEnded(TimePoint now, const Call& call, Changes& changes) {
  ReturnExcess(changes);
  const auto worker = workers_.find(call.worker);
  if (worker == workers_.end()) return;
  EndInterval(now, changes);
  Method* const method = FindMethod(now, call.method);
  if (method != nullptr) FindMedian(now, *method);
  if (worker->second.ejected_until.has_value()) return OnProbed(now, call, method, worker->second, changes);
  if (method == nullptr) return;
  Row& row = RowOf(*method, call.worker);
  if (!HasWaited(call, *method, row)) return;
  if (call.end == End::kResponded) return CountAnswer(call, *method, row);
  CountMiss(now, call, *method, row);
  if (const auto why = WhyByFailures(now, *method, row)) Eject(now, call.worker, *why, changes);
}

// A new name takes the place of the one that was not used for longest, unless all are in use. Otherwise a client could
// push out the methods of others with invented names.
OutlierEjection::Method* OutlierEjection::FindMethod(TimePoint now, std::string_view name) {
  auto found = methods_.find(name);
  if (found == methods_.end()) {
    if (methods_.size() >= kMaxMethods) {
      const auto oldest = std::min_element(methods_.begin(), methods_.end(), [](const auto& a, const auto& b) {
        return a.second.last_use < b.second.last_use;
      });
      if (now - oldest->second.last_use < absl::ToChronoNanoseconds(options_.interval)) return nullptr;
      methods_.erase(oldest);
    }
    found = methods_.try_emplace(std::string(name)).first;
  }
  found->second.last_use = now;
  return &found->second;
}

OutlierEjection::Row& OutlierEjection::RowOf(Method& method, size_t worker) {
  return method.rows.try_emplace(worker, Row{.others_before = method.all}).first->second;
}

void OutlierEjection::Count(const Call& call, Method& method, Row& row) {
  for (Tally* tally : {&row.all, &row.interval, &row.recent, &method.all, &method.interval, &method.recent}) {
    ++(call.end == End::kResponded ? tally->answered : tally->missed);
  }
  if (call.end == End::kFailed) return;
  ++row.timed_calls;
  row.took += call.took;
}

// The calls of a worker that is removed or ejected show nothing about the others.
void OutlierEjection::LeaveOut(const Row& row, Method& method) {
  method.interval = method.interval - row.interval;
  method.recent = method.recent - row.recent;
}

void OutlierEjection::CountAnswer(const Call& call, Method& method, Row& row) {
  Count(call, method, row);
  const nanoseconds mean = row.mean_time.value_or(call.took);
  row.mean_time = mean + (call.took - mean) / kMeanOf;
  row.missed = row.failures = 0;
  row.others_before = AllOfOthers(method, row);
}

// A failure counts if another worker has answered since the failure before.
void OutlierEjection::CountMiss(TimePoint now, const Call& call, Method& method, Row& row) {
  Count(call, method, row);
  ++row.missed;
  const int64_t answered = AllOfOthers(method, row).answered;
  if (answered <= row.answered_before_failure || (row.failures > 0 && call.sent < row.last_failed)) return;
  if (row.failures == 0) {
    row.all_failed = true;
    row.first_failed = call.sent;
  }
  ++row.failures;
  row.last_failed = now;
  row.answered_before_failure = answered;
  if (call.end == End::kGivenUp) row.all_failed = false;
}

std::optional<EjectionReason> OutlierEjection::WhyByFailures(TimePoint now, const Method& method,
                                                             const Row& row) const {
  const int64_t failures = options_.consecutive_errors;
  if (failures == 0 || row.failures < failures || !IsToBlame(method, row, failures)) return std::nullopt;
  if (row.all_failed) return EjectionReason::kErrors;
  if (now - row.first_failed < kNoResponse) return std::nullopt;
  return EjectionReason::kNoResponse;
}

// Whether its misses in a row are unlikely for a worker that misses the share of calls that the other workers do, in
// recent intervals or since its last response. In the intervals, one more miss is assumed: few calls show little. A
// single failure cannot be compared like that.
bool OutlierEjection::IsToBlame(const Method& method, const Row& row, int64_t failures) {
  const Tally others = AllOfOthers(method, row) - row.others_before;
  if (others.answered <= 0) return false;
  const auto share = [](double missed, double answered) { return missed / (missed + answered); };
  double missed = share(static_cast<double>(others.missed), static_cast<double>(others.answered));
  if (failures > 1) {
    const Tally recent = method.recent - row.recent;
    missed = std::max(missed, share(static_cast<double>(recent.missed + 1), static_cast<double>(recent.answered)));
  }
  return std::pow(missed, row.missed) <= std::pow(kRareFailure, -failures);
}

std::optional<EjectionReason> OutlierEjection::WhyByInterval(const Method& method, const Row& row) const {
  if (row.interval.calls() < options_.request_volume) return std::nullopt;
  const int64_t threshold = options_.failure_percentage_threshold;
  const Tally others = method.interval - row.interval;
  if (threshold > 0 && row.interval.missed * kPercent >= threshold * row.interval.calls() && others.answered > 0 &&
      2 * others.missed * kPercent < threshold * others.calls()) {
    return EjectionReason::kFailurePercentage;
  }
  if (row.timed_calls >= options_.request_volume && IsSlow(row.took / row.timed_calls, method, row)) {
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
  std::map<size_t, EjectionReason> outliers;
  for (auto& [name, method] : methods_) {
    for (auto& [id, row] : method.rows) {
      if (const auto why = WhyByInterval(method, row)) outliers.try_emplace(id, *why);
    }
    for (auto& [id, row] : method.rows) {
      row.recent = passed == 1 ? row.interval : Tally();
      row.interval = {};
      row.timed_calls = 0;
      row.took = nanoseconds(0);
    }
    method.recent = passed == 1 ? method.interval : Tally();
    method.interval = {};
  }
  for (size_t id : order_) {
    Worker& worker = workers_[id];
    if (worker.ejected_until.has_value()) continue;
    worker.ejections -= std::min(worker.ejections, passed);
    if (const auto why = outliers.find(id); why != outliers.end()) Eject(now, id, why->second, changes);
  }
}

// Calls that were sent during the ejection, since no other worker could answer them, show nothing new.
void OutlierEjection::OnProbed(TimePoint now, const Call& call, Method* method, Worker& worker, Changes& changes) {
  if (call.sent < *worker.ejected_until) return;
  worker.probe_chosen.reset();
  if (method == nullptr) return;
  Row& row = RowOf(*method, call.worker);
  if (call.end == End::kResponded && !IsSlow(call.took, *method, row)) {
    CountAnswer(call, *method, row);
    return Return(call.worker, worker, changes);
  }
  if (!HasWaited(call, *method, row)) return;
  if (call.end != End::kResponded) ++row.missed;
  if (call.end == End::kResponded || IsToBlame(*method, row, 1)) {
    Eject(now, call.worker, EjectionReason::kProbe, changes);
  }
}

void OutlierEjection::Eject(TimePoint now, size_t id, EjectionReason reason, Changes& changes) {
  Worker& worker = workers_[id];
  if (!worker.ejected_until.has_value()) {
    if (ejected_ >= MaxEjected()) return;
    ++ejected_;
  }
  const absl::Duration longest = std::max(options_.base_ejection_time, options_.max_ejection_time);
  if (worker.ejections * options_.base_ejection_time < longest) ++worker.ejections;
  const absl::Duration time = std::min(worker.ejections * options_.base_ejection_time, longest);
  worker = {.ejections = worker.ejections, .ejected_until = SaturatingAdd(now, absl::ToChronoNanoseconds(time))};
  for (auto& [name, method] : methods_) {
    const auto found = method.rows.find(id);
    if (found == method.rows.end()) continue;
    Row& row = found->second;
    LeaveOut(row, method);
    const Tally others = AllOfOthers(method, row);
    row = {.all = row.all, .others_before = others, .answered_before_failure = others.answered};
  }
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

void OutlierEjection::FindMedian(TimePoint now, Method& method) {
  const nanoseconds every = method.known_means > 1 ? nanoseconds(kMedianEvery) : nanoseconds(kFirstMedianEvery);
  if (method.median_found.has_value() && now - *method.median_found < every) return;
  method.median_found = now;
  std::vector<nanoseconds> times;  // ejected workers have none
  for (const auto& [id, row] : method.rows) {
    if (row.mean_time.has_value()) times.push_back(*row.mean_time);
  }
  method.known_means = times.size();
  if (times.empty()) return;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(std::max<size_t>(times.size(), 2) / 2 - 1);
  std::nth_element(times.begin(), middle, times.end());
  method.median_below = *middle;
  method.median_above = times.size() == 1 ? *middle : *std::min_element(middle + 1, times.end());
}

// Of an even number of workers, the lower of the two in the middle.
std::optional<nanoseconds> OutlierEjection::MedianOfOthers(const Method& method, const Row& row) {
  const size_t others = method.known_means - std::min<size_t>(method.known_means, row.mean_time.has_value() ? 1 : 0);
  if (others == 0) return std::nullopt;
  if (row.mean_time.has_value())
    return *row.mean_time <= method.median_below ? method.median_above : method.median_below;
  return others % 2 == 1 ? method.median_above : method.median_below;
}

// Whether it shows something: most calls to other workers had a response sooner. Rejected: the bound of IsSlow. Hedges
// give a call up after two or three medians, and a hung worker would stay.
bool OutlierEjection::HasWaited(const Call& call, const Method& method, const Row& row) {
  if (call.end != End::kGivenUp) return true;
  const std::optional<nanoseconds> median = MedianOfOthers(method, row);
  return median.has_value() && call.took > kGivenUpMedians * *median;
}

bool OutlierEjection::IsSlow(nanoseconds time, const Method& method, const Row& row) const {
  const std::optional<nanoseconds> median = MedianOfOthers(method, row);
  if (options_.latency_factor == 0 || !median.has_value()) return false;
  const nanoseconds bound(static_cast<int64_t>(static_cast<double>(median->count()) * options_.latency_factor));
  return time > std::max<nanoseconds>(bound, *median + kLeastDifference);
}

}  // namespace sluice
