#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "lib/sharing/link_divider.h"

namespace sluice {

inline constexpr int64_t kBudget = 32'000;
inline constexpr int64_t kLots = 1'000'000;

inline TimePoint At(std::chrono::nanoseconds since_start) {
  return TimePoint(since_start);
}

inline LinkDivider::Options TestOptions() {
  using std::chrono_literals::operator""ms;
  return {.budget_bytes = kBudget,
          .frame_bytes = 1000,
          .lease_time = 100ms,
          .drain_time = 5ms,
          .start_grace = std::chrono::nanoseconds(0),
          .division_pause = std::chrono::nanoseconds(0)};
}

// Clients that obey their leases: Report fills in the last lease. Events return the bytes of changed leases, by client.
class Clients {
 public:
  using Leases = std::vector<std::pair<uint64_t, int64_t>>;

  explicit Clients(const LinkDivider::Options& options = TestOptions()) : shares_(options, TimePoint()) {}

  Leases Join(TimePoint now, uint64_t client, double weight = 1, ShareReport report = {}) {
    shares_.Join(now, client, weight);
    return Report(now, client, report);
  }

  // Reports with all earlier leases acknowledged.
  Leases Report(TimePoint now, uint64_t client, ShareReport report) {
    report.acknowledged = told_[client].id;
    report.limit_bytes = told_[client].bytes;
    return Late(now, client, report);
  }

  // Reports exactly the given report.
  Leases Late(TimePoint now, uint64_t client, const ShareReport& report) {
    return Do([&](std::vector<ShareLease>& leases) { shares_.Report(now, client, report, leases); });
  }
  Leases Leave(TimePoint now, uint64_t client) {
    return Do([&](std::vector<ShareLease>& leases) { shares_.Leave(now, client, leases); });
  }
  Leases Timer(TimePoint now) {
    return Do([&](std::vector<ShareLease>& leases) { shares_.OnTimer(now, leases); });
  }
  Leases SetBudget(TimePoint now, int64_t bytes) {
    return Do([&](std::vector<ShareLease>& leases) { shares_.SetBudget(now, bytes, leases); });
  }

  int64_t lease(uint64_t client) const { return shares_.State(client).lease_bytes; }
  size_t messages() const { return messages_; }  // leases of the last event
  const ShareLease& told(uint64_t client) { return told_[client]; }
  LinkDivider& shares() { return shares_; }

 private:
  template <class Event>
  Leases Do(Event event) {
    std::vector<ShareLease> leases;
    event(leases);
    Leases bytes;
    messages_ = leases.size();
    for (const ShareLease& lease : leases) {
      const int64_t before = std::exchange(told_[lease.client], lease).bytes;
      if (lease.bytes != before) bytes.emplace_back(lease.client, lease.bytes);
    }
    return bytes;
  }

  LinkDivider shares_;
  std::map<uint64_t, ShareLease> told_;
  size_t messages_ = 0;
};

inline ShareReport Busy(int64_t in_flight_bytes = 0, int64_t need_bytes = 1000) {
  return {.demand_bytes = kLots, .in_flight_bytes = in_flight_bytes, .need_bytes = need_bytes};
}

}  // namespace sluice
