#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "lib/link/outlier_ejection.h"

namespace sluice::testing {

// The rules of OutlierEjection, computed each time from all calls of a worker. There is one for each random run.
class OutlierEjectionOracle {
 public:
  explicit OutlierEjectionOracle(const OutlierDetection& options) : options_(options) {}

  void SetWorkers(const std::vector<size_t>& workers) {
    std::map<size_t, Worker> kept;
    for (size_t id : workers) {
      const auto found = workers_.find(id);
      kept[id] = found == workers_.end() ? Worker() : found->second;
    }
    workers_ = std::move(kept);
    order_ = workers;
    ReturnExcess();
  }

  void OnEnded(TimePoint now, const OutlierEjection::Call& call) {
    ReturnExcess();
    if (!workers_.contains(call.worker)) return;
    EndIntervals(now);
    FindMedian(now);
    Worker& worker = workers_[call.worker];
    const bool given_up_soon =
        call.end == OutlierEjection::End::kGivenUp && !(median_.has_value() && call.took > 2 * *median_);
    const bool slow = IsSlow(call.took);
    if (worker.until.has_value()) {
      if (call.sent < *worker.until) return;
      if (given_up_soon) {
        worker.probe.reset();
      } else if (call.end == OutlierEjection::End::kResponded && !slow) {
        worker.until.reset();
        worker.seed = call.took;
      } else {
        Eject(now, worker);
      }
      return;
    }
    if (given_up_soon) return;
    worker.log.push_back({now, call});
    if (call.end != OutlierEjection::End::kResponded && FailsTooOften(now, worker)) Eject(now, worker);
  }

  void OnChosen(TimePoint now, size_t id) {
    if (workers_.contains(id) && workers_[id].until.has_value() && !IsAvoided(now, id)) workers_[id].probe = now;
  }
  bool IsAvoided(TimePoint now, size_t id) const {
    const auto found = workers_.find(id);
    if (found == workers_.end() || !found->second.until.has_value()) return false;
    if (now < *found->second.until) return true;
    return found->second.probe.has_value() && now < *found->second.probe + absl::ToChronoNanoseconds(options_.interval);
  }
  std::set<size_t> Ejected() const {
    std::set<size_t> ejected;
    for (const auto& [id, worker] : workers_) {
      if (worker.until.has_value()) ejected.insert(id);
    }
    return ejected;
  }
  // Rounds down. The last worker is never ejected, and one of three or more may be.
  size_t Most() const {
    size_t most = 0;
    while (most + 1 < order_.size() &&
           100 * (most + 1) <= order_.size() * static_cast<size_t>(options_.max_ejection_percent)) {
      ++most;
    }
    return order_.size() > 2 && options_.max_ejection_percent > 0 ? std::max<size_t>(most, 1) : most;
  }

 private:
  using Nanoseconds = std::chrono::nanoseconds;
  struct Entry {
    TimePoint ended;
    OutlierEjection::Call call;
  };
  struct Worker {
    std::vector<Entry> log;           // the calls that count since the last ejection
    size_t interval_from = 0;         // the first entry of the current interval
    std::optional<Nanoseconds> seed;  // the time of the probe before them
    int64_t ejections = 0;
    std::optional<TimePoint> until;
    std::optional<TimePoint> probe;
  };

  bool FailsTooOften(TimePoint now, const Worker& worker) const {
    size_t from = worker.log.size();
    while (from > 0 && worker.log[from - 1].call.end != OutlierEjection::End::kResponded) --from;
    int64_t rounds = 0;
    bool given_up = false;
    TimePoint last_ended;
    for (size_t i = from; i < worker.log.size(); ++i) {
      const Entry& entry = worker.log[i];
      if (rounds > 0 && entry.call.sent < last_ended) continue;
      ++rounds;
      last_ended = entry.ended;
      given_up = given_up || entry.call.end == OutlierEjection::End::kGivenUp;
    }
    if (options_.consecutive_errors == 0 || rounds < options_.consecutive_errors) return false;
    return !given_up || now - worker.log[from].call.sent >= std::chrono::seconds(1);
  }

  bool IsOutlier(const Worker& worker) const {
    int64_t calls = 0;
    int64_t failed = 0;
    Nanoseconds took{0};
    for (size_t i = worker.interval_from; i < worker.log.size(); ++i) {
      ++calls;
      if (worker.log[i].call.end == OutlierEjection::End::kFailed) {
        ++failed;
      } else {
        took += worker.log[i].call.took;
      }
    }
    if (calls < options_.request_volume) return false;
    if (options_.failure_percentage_threshold > 0 && 100 * failed >= options_.failure_percentage_threshold * calls) {
      return true;
    }
    return calls - failed >= options_.request_volume && IsSlow(took / (calls - failed));
  }

  void EndIntervals(TimePoint now) {
    if (!interval_end_.has_value()) interval_end_ = now + absl::ToChronoNanoseconds(options_.interval);
    int64_t passed = 0;
    for (; now >= *interval_end_; *interval_end_ += absl::ToChronoNanoseconds(options_.interval)) ++passed;
    if (passed == 0) return;
    for (size_t id : order_) {
      Worker& worker = workers_[id];
      if (worker.until.has_value()) continue;
      worker.ejections = std::max<int64_t>(0, worker.ejections - passed);
      const bool outlier = IsOutlier(worker);
      worker.interval_from = worker.log.size();
      if (outlier) Eject(now, worker);
    }
  }

  void Eject(TimePoint now, Worker& worker) {
    if (!worker.until.has_value() && Ejected().size() >= Most()) return;
    const absl::Duration longest = std::max(options_.base_ejection_time, options_.max_ejection_time);
    if (worker.ejections * options_.base_ejection_time < longest) ++worker.ejections;
    const int64_t ejections = worker.ejections;
    worker = Worker();
    worker.ejections = ejections;
    worker.until = now + absl::ToChronoNanoseconds(std::min(ejections * options_.base_ejection_time, longest));
  }

  void ReturnExcess() {
    while (Ejected().size() > Most()) {
      Worker* first = nullptr;
      for (size_t id : order_) {
        Worker& worker = workers_[id];
        if (worker.until.has_value() && (first == nullptr || *worker.until < *first->until)) first = &worker;
      }
      first->until.reset();
      first->probe.reset();
    }
  }

  void FindMedian(TimePoint now) {
    const Nanoseconds every =
        median_.has_value() ? Nanoseconds(std::chrono::seconds(1)) : std::chrono::milliseconds(10);
    if (median_found_.has_value() && now < *median_found_ + every) return;
    median_found_ = now;
    std::vector<Nanoseconds> means;
    for (const auto& [id, worker] : workers_) {
      if (worker.until.has_value()) continue;
      std::optional<Nanoseconds> mean = worker.seed;
      for (const Entry& entry : worker.log) {
        if (entry.call.end != OutlierEjection::End::kResponded) continue;
        mean = mean.has_value() ? *mean + (entry.call.took - *mean) / 8 : entry.call.took;
      }
      if (mean.has_value()) means.push_back(*mean);
    }
    std::sort(means.begin(), means.end());
    median_.reset();
    if (means.size() >= 2) median_ = means[(means.size() - 1) / 2];
  }

  bool IsSlow(Nanoseconds time) const {
    if (options_.latency_factor == 0 || !median_.has_value()) return false;
    const auto times = static_cast<int64_t>(static_cast<double>(median_->count()) * options_.latency_factor);
    return time > Nanoseconds(times) && time > *median_ + std::chrono::milliseconds(10);
  }

  const OutlierDetection& options_;
  std::map<size_t, Worker> workers_;
  std::vector<size_t> order_;
  std::optional<TimePoint> interval_end_;
  std::optional<TimePoint> median_found_;
  std::optional<Nanoseconds> median_;
};

}  // namespace sluice::testing
