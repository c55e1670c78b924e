#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
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
    for (auto& [name, method] : methods_) {
      for (const auto& [id, worker] : workers_) {
        if (kept.contains(id)) continue;
        method.rows.erase(id);
        for (Entry& entry : method.log) {
          if (entry.call.worker != id) continue;
          entry.call.worker = kRemoved;
          entry.age = kOld;
        }
      }
    }
    workers_ = std::move(kept);
    order_ = workers;
    ReturnExcess();
  }

  void OnEnded(TimePoint now, const OutlierEjection::Call& call) {
    ReturnExcess();
    if (!workers_.contains(call.worker)) return;
    EndIntervals(now);
    Method* const method = FindMethod(now, std::string(call.method));
    if (method != nullptr) FindMedian(now, *method);
    Worker& worker = workers_[call.worker];
    if (worker.until.has_value() && call.sent < *worker.until) return;
    if (worker.until.has_value()) worker.probe.reset();
    if (method == nullptr) return;
    if (!method->rows.contains(call.worker)) {
      const bool answered =
          std::any_of(method->log.begin(), method->log.end(), [](const Entry& entry) { return !entry.missed(); });
      method->rows[call.worker] = {.from = method->log.size(), .answered = answered};
    }
    const std::optional<Nanoseconds> median = MedianOfOthers(*method, call.worker);
    if (call.end == OutlierEjection::End::kGivenUp && !(median.has_value() && call.took > 2 * *median)) return;
    const bool responded = call.end == OutlierEjection::End::kResponded;
    if (!worker.until.has_value()) {
      method->log.push_back({now, call});
      if (!responded && FailsTooOften(now, *method, call.worker)) Eject(now, call.worker);
    } else if (responded && !IsSlow(call.took, median)) {
      worker.until.reset();
      method->log.push_back({now, call});
    } else {
      if (!responded) method->rows[call.worker].failed_probes.push_back(method->log.size());
      if (responded || IsToBlame(*method, call.worker, 1)) Eject(now, call.worker);
    }
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
  // Rounds down. The last worker is never ejected, and one of two or more may be.
  size_t Most() const {
    size_t most = 0;
    while (most + 1 < order_.size() &&
           100 * (most + 1) <= order_.size() * static_cast<size_t>(options_.max_ejection_percent)) {
      ++most;
    }
    return order_.size() > 1 && options_.max_ejection_percent > 0 ? std::max<size_t>(most, 1) : most;
  }

 private:
  using Nanoseconds = std::chrono::nanoseconds;
  // The calls of removed workers.
  static constexpr size_t kRemoved = SIZE_MAX;
  static constexpr int64_t kOld = 2;
  struct Entry {
    TimePoint ended;
    OutlierEjection::Call call;
    int64_t age = 0;  // in intervals; kOld after an ejection of its worker

    bool missed() const { return call.end != OutlierEjection::End::kResponded; }
  };
  struct Method {
    std::vector<Entry> log;  // the calls that count
    // Of a worker that was called.
    struct Row {
      size_t from = 0;                    // the first entry since its last ejection, or since its first call
      bool answered = false;              // other workers had answered before its first call
      std::vector<size_t> failed_probes;  // the size of the log then
    };
    std::map<size_t, Row> rows;
    TimePoint last_use;
    std::optional<TimePoint> median_found;
    std::vector<Nanoseconds> means;  // sorted
  };
  struct Worker {
    int64_t ejections = 0;
    std::optional<TimePoint> until;
    std::optional<TimePoint> probe;
  };

  Method* FindMethod(TimePoint now, const std::string& name) {
    if (!methods_.contains(name) && methods_.size() == OutlierEjection::kMaxMethods) {
      std::optional<std::string> oldest;
      for (const auto& [other, method] : methods_) {
        if (!oldest.has_value() || method.last_use < methods_[*oldest].last_use) oldest = other;
      }
      if (methods_[*oldest].last_use + absl::ToChronoNanoseconds(options_.interval) > now) return nullptr;
      methods_.erase(*oldest);
    }
    methods_[name].last_use = now;
    return &methods_[name];
  }

  static size_t From(const Method& method, size_t id) {
    const auto found = method.rows.find(id);
    return found == method.rows.end() ? 0 : found->second.from;
  }
  // The first entry after the worker's last response or ejection.
  static size_t Since(const Method& method, size_t id) {
    size_t since = From(method, id);
    for (size_t i = since; i < method.log.size(); ++i) {
      if (method.log[i].call.worker == id && !method.log[i].missed()) since = i + 1;
    }
    return since;
  }

  // 1 if they have answered none.
  static double ShareOfOthers(const Method& method, size_t id, size_t from, bool recent) {
    int64_t missed = recent ? 1 : 0;
    int64_t answered = 0;
    for (size_t i = from; i < method.log.size(); ++i) {
      const Entry& entry = method.log[i];
      if (entry.call.worker == id || (recent && entry.age > 1)) continue;
      ++(entry.missed() ? missed : answered);
    }
    return answered == 0 ? 1 : static_cast<double>(missed) / static_cast<double>(missed + answered);
  }

  static bool IsToBlame(const Method& method, size_t id, int64_t failures) {
    const size_t since = Since(method, id);
    double share = ShareOfOthers(method, id, since, false);
    if (share == 1) return false;
    if (failures > 1) share = std::max(share, ShareOfOthers(method, id, 0, true));
    int64_t misses = 0;
    for (size_t i = since; i < method.log.size(); ++i) misses += method.log[i].call.worker == id ? 1 : 0;
    const std::vector<size_t>& probes = method.rows.at(id).failed_probes;
    misses += std::count_if(probes.begin(), probes.end(), [since](size_t at) { return at >= since; });
    return std::pow(share, misses) <= std::pow(64.0, -failures);
  }

  bool FailsTooOften(TimePoint now, const Method& method, size_t id) const {
    int64_t rounds = 0;
    bool given_up = false;
    bool answered = method.rows.at(id).answered;
    TimePoint first_sent;
    TimePoint last_ended;
    for (size_t i = From(method, id); i < method.log.size(); ++i) {
      const Entry& entry = method.log[i];
      if (entry.call.worker != id) {
        answered = answered || !entry.missed();
      } else if (!entry.missed()) {
        rounds = 0;
      } else if (answered && (rounds == 0 || entry.call.sent >= last_ended)) {
        if (rounds++ == 0) {
          first_sent = entry.call.sent;
          given_up = false;
        }
        last_ended = entry.ended;
        given_up = given_up || entry.call.end == OutlierEjection::End::kGivenUp;
        answered = false;
      }
    }
    if (options_.consecutive_errors == 0 || rounds < options_.consecutive_errors) return false;
    if (!IsToBlame(method, id, options_.consecutive_errors)) return false;
    return !given_up || now - first_sent >= std::chrono::seconds(1);
  }

  bool IsOutlier(const Method& method, size_t id) const {
    int64_t calls = 0;
    int64_t missed = 0;
    int64_t timed = 0;
    int64_t other_calls = 0;
    int64_t other_missed = 0;
    Nanoseconds took{0};
    for (const Entry& entry : method.log) {
      if (entry.age > 0) continue;
      const bool own = entry.call.worker == id;
      ++(own ? calls : other_calls);
      if (entry.missed()) ++(own ? missed : other_missed);
      if (!own || entry.call.end == OutlierEjection::End::kFailed) continue;
      ++timed;
      took += entry.call.took;
    }
    if (calls < options_.request_volume) return false;
    const int64_t threshold = options_.failure_percentage_threshold;
    if (threshold > 0 && 100 * missed >= threshold * calls && other_calls > other_missed &&
        200 * other_missed < threshold * other_calls) {
      return true;
    }
    return timed >= options_.request_volume && IsSlow(took / timed, MedianOfOthers(method, id));
  }

  void EndIntervals(TimePoint now) {
    if (!interval_end_.has_value()) interval_end_ = now + absl::ToChronoNanoseconds(options_.interval);
    int64_t passed = 0;
    for (; now >= *interval_end_; *interval_end_ += absl::ToChronoNanoseconds(options_.interval)) ++passed;
    if (passed == 0) return;
    std::set<size_t> outliers;
    for (auto& [name, method] : methods_) {
      for (size_t id : order_) {
        if (IsOutlier(method, id)) outliers.insert(id);
      }
      for (Entry& entry : method.log) entry.age += passed;
    }
    for (size_t id : order_) {
      Worker& worker = workers_[id];
      if (worker.until.has_value()) continue;
      worker.ejections = std::max<int64_t>(0, worker.ejections - passed);
      if (outliers.contains(id)) Eject(now, id);
    }
  }

  void Eject(TimePoint now, size_t id) {
    Worker& worker = workers_[id];
    if (!worker.until.has_value() && Ejected().size() >= Most()) return;
    const absl::Duration longest = std::max(options_.base_ejection_time, options_.max_ejection_time);
    if (worker.ejections * options_.base_ejection_time < longest) ++worker.ejections;
    worker.until = now + absl::ToChronoNanoseconds(std::min(worker.ejections * options_.base_ejection_time, longest));
    worker.probe.reset();
    for (auto& [name, method] : methods_) {
      if (!method.rows.contains(id)) continue;
      method.rows[id] = {.from = method.log.size()};
      for (Entry& entry : method.log) {
        if (entry.call.worker == id) entry.age = kOld;
      }
    }
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

  static std::optional<Nanoseconds> MeanOf(const Method& method, size_t id) {
    std::optional<Nanoseconds> mean;
    for (size_t i = From(method, id); i < method.log.size(); ++i) {
      const OutlierEjection::Call& call = method.log[i].call;
      if (call.worker != id || method.log[i].missed()) continue;
      mean = mean.has_value() ? *mean + (call.took - *mean) / 8 : call.took;
    }
    return mean;
  }

  void FindMedian(TimePoint now, Method& method) const {
    const Nanoseconds every =
        method.means.size() > 1 ? Nanoseconds(std::chrono::seconds(1)) : std::chrono::milliseconds(10);
    if (method.median_found.has_value() && now < *method.median_found + every) return;
    method.median_found = now;
    method.means.clear();
    for (size_t id : order_) {
      if (const auto mean = MeanOf(method, id)) method.means.push_back(*mean);
    }
    std::sort(method.means.begin(), method.means.end());
  }

  static std::optional<Nanoseconds> MedianOfOthers(const Method& method, size_t id) {
    std::vector<Nanoseconds> means = method.means;
    if (const auto own = MeanOf(method, id); own.has_value() && !means.empty()) {
      const bool lower = means.size() == 1 || *own <= means[means.size() / 2 - 1];
      means.erase(lower ? means.begin() : means.end() - 1);
    }
    if (means.empty()) return std::nullopt;
    return means[(means.size() - 1) / 2];
  }

  bool IsSlow(Nanoseconds time, std::optional<Nanoseconds> median) const {
    if (options_.latency_factor == 0 || !median.has_value()) return false;
    const auto times = static_cast<int64_t>(static_cast<double>(median->count()) * options_.latency_factor);
    return time > Nanoseconds(times) && time > *median + std::chrono::milliseconds(10);
  }

  const OutlierDetection& options_;
  std::map<size_t, Worker> workers_;
  std::vector<size_t> order_;
  std::map<std::string, Method> methods_;
  std::optional<TimePoint> interval_end_;
};

}  // namespace sluice::testing
