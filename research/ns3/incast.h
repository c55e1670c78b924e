#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/scheduling/link_schedule.h"
#include "research/ns3/distribution.h"
#include "research/ns3/network.h"
#include "research/ns3/ns3_executor.h"
#include "research/ns3/victim_flow.h"

namespace sluice::testing {

// One simulated service: an aggregator that calls all its workers in each fan-out, over one network.
struct IncastOptions {
  Network::Options network;       // its numbers of hosts and connections are set from these options
  double buffer_taken_share = 0;  // share of the buffer that other traffic uses, unknown to the schedule

  SchedulePolicy policy = SchedulePolicy::kGrants;
  // 0: the budget starts as the buffer and shrinks after losses, as in Sluice. Otherwise a fixed number of bytes.
  int64_t budget_bytes = 0;
  size_t static_cap = 0;  // maximum calls in flight of all fan-outs, in addition to the schedule; 0: no limit
  Ns3Executor::LinkThread link_thread;
  absl::Duration timer_jitter = LinkProfile().timer_jitter;  // the lateness of timers that the schedule allows for

  size_t workers = 32;
  size_t hosts = 0;  // shared by the workers; 0: one for each worker
  std::optional<Distribution> sizes;
  std::optional<Distribution> think;
  std::chrono::nanoseconds jitter{0};  // of the workers' hosts
  // The response size that the schedule receives, as a multiple of the true size; 0: none.
  double announced_share = 0;

  double load = 0;         // open loop: Poisson arrivals that offer this share of the link; 0: closed loop
  size_t concurrency = 1;  // closed loop: fan-outs at a time
  size_t warm_up = 2;      // fan-outs that do not count
  size_t fan_outs = 10;

  std::optional<VictimFlow::Options> victim;

  bool watch_wire = false;  // checks all bytes of the connections against the budget; for rolling and grants
  uint64_t seed = 1;
  absl::Duration longest = absl::Seconds(100);            // simulated time
  absl::Duration longest_run = absl::InfiniteDuration();  // of CPU time
};

struct IncastResult {
  size_t fan_outs = 0;    // that have ended and count
  size_t unfinished = 0;  // that count and have not ended; their times are the times so far
  size_t failed_calls = 0;
  double seconds = 0;  // simulated seconds that count
  double goodput_bps = 0;
  double link_busy_share = 0;  // bytes that the bottleneck has sent, as a share of its capacity
  std::vector<double> fan_out_seconds;
  std::vector<double> victim_seconds;
  PortQueue::Counts bottleneck;
  int64_t other_drops = 0;
  int64_t retransmission_timeouts = 0;
  double link_thread_busy_share = 0;
  int64_t turns = 0;
  int64_t budget_bytes = 0;           // at the end
  int64_t budget_changes = 0;         // in the whole run
  std::vector<std::string> breaches;  // with watch_wire
  uint64_t events = 0;                // of ns-3, in the whole run
  double run_seconds = 0;             // of CPU time
};

// Runs the simulation. Returns InvalidArgument for inconsistent options, and Unavailable if a worker could not be
// connected. Call it once at a time in a process, because ns-3 is global.
absl::StatusOr<IncastResult> RunIncast(const IncastOptions& options);

}  // namespace sluice::testing
