#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sluice/time_point.h"

#include "lib/sharing/class_division.h"
#include "lib/sharing/client_lease.h"

namespace sluice {

// One class of traffic of a client.
struct ClassReport {
  double weight = 1;         // above 0
  int64_t demand_bytes = 0;  // 0: nothing waits
  int64_t received_bytes = 0;
};

// The report of a client. Sizes as in LinkDemand.
struct ShareReport {
  uint64_t acknowledged = 0;  // the newest lease that the client uses; 0: none
  int64_t limit_bytes = 0;    // maximum that the client has in flight now
  int64_t demand_bytes = 0;   // 0: it is idle
  int64_t in_flight_bytes = 0;
  int64_t need_bytes = 0;
  int64_t received_bytes = 0;
  uint64_t oldest_block = 0;
  std::chrono::nanoseconds oldest_block_age{0};
  std::vector<ClassReport> classes;  // in the order of its Join; LinkDivider keeps at least one
};

// A client of LinkDivider: its last report, its lease, its share and its turn. Used by LinkDivider and LinkTurns only.
struct SharingClient {
  uint64_t id = 0;
  double weight = 1;
  std::vector<std::string> class_names;  // at least one
  ClientClaim claim;                     // on its classes
  bool claims = false;                   // `claim` is in the division by class
  bool alive = false;                    // has reported, less than a lease time ago
  bool reported = false;                 // since the last division
  ShareReport report;
  TimePoint expires_at;
  TimePoint asked_at;           // fifo: when its oldest block was submitted
  int64_t last_need_bytes = 0;  // need of its last call that waited
  int64_t expirations = 0;
  ClientLease lease;

  // The amounts that the client should have.
  int64_t class_bytes = 0;            // of its classes that are busy, at its last report
  int64_t share_bytes = 0;            // by its weight, among busy clients
  double share_weight = 1;            // its weight, or that of its classes that are busy, among busy clients
  std::vector<double> class_weights;  // of its classes in its own schedule; empty: those that it reports
  std::vector<double> sent_class_weights;
  bool weights_changed = false;  // class_weights differ enough from those sent for a message
  int64_t floor_bytes = 0;
  int64_t target_bytes = 0;
  double credit_bytes = 0;      // how far it is behind other clients; negative if it is ahead
  double uncredited_bytes = 0;  // received since the last division, in contention with others

  // Its turn.
  bool in_turn = false;
  bool waits = false;      // it waited for its turn at the last division
  int64_t turn_bytes = 0;  // bytes received in its turn
  uint64_t turn_block = 0;
  TimePoint stalls_at;  // when its turn ends unless bytes arrive

  bool hungry() const { return alive && report.demand_bytes > 0; }
  // If false, all its calls are at its workers, and the link can do nothing for it.
  bool needy() const { return hungry() && report.need_bytes > 0; }
  // The largest amount that the client may still use.
  int64_t EntitledBytes() const { return std::max({lease.MostBytes(), report.limit_bytes, report.in_flight_bytes}); }
};

}  // namespace sluice
