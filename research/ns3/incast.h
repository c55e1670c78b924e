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

// One simulated service: an aggregator that asks all of its workers in each fan-out, over one network.
struct IncastOptions {
  Network::Options network;       // hosts and connections are set from here
  double buffer_taken_share = 0;  // of the buffer, by others, which the schedule is not told

  SchedulePolicy policy = SchedulePolicy::kGrants;
  // 0: the buffer at the start, and less after losses, as the product has it. Else that many, always.
  int64_t budget_bytes = 0;
  size_t static_cap = 0;  // calls in flight, of all fan-outs, above the schedule; 0: none
  Ns3Executor::LinkThread link_thread;

  size_t workers = 32;
  size_t hosts = 0;  // that the workers share; 0: one each
  std::optional<Distribution> sizes;
  std::optional<Distribution> think;
  std::chrono::nanoseconds jitter{0};  // of the workers' hosts
  // What the schedule is told of the size of an answer, in parts of the truth; 0: nothing.
  double announced_share = 0;

  double load = 0;         // open loop: Poisson arrivals that offer so much of the link; 0: closed loop
  size_t concurrency = 1;  // closed loop: fan-outs under way
  size_t warm_up = 2;      // fan-outs that do not count
  size_t fan_outs = 10;

  std::optional<VictimFlow::Options> victim;

  bool watch_wire = false;  // checks all bytes of the connections against the budget; for rolling and grants
  uint64_t seed = 1;
  absl::Duration longest = absl::Seconds(100);            // simulated
  absl::Duration longest_run = absl::InfiniteDuration();  // of processor time
};

struct IncastResult {
  size_t fan_outs = 0;    // that have ended and count
  size_t unfinished = 0;  // that count, and had not ended: their times are what they had taken so far
  size_t failed_calls = 0;
  double seconds = 0;  // simulated, that count
  double goodput_bps = 0;
  double link_busy_share = 0;  // what the bottleneck has sent, in parts of its capacity
  std::vector<double> fan_out_seconds;
  std::vector<double> victim_seconds;
  PortQueue::Counts bottleneck;
  int64_t other_drops = 0;
  int64_t retransmission_timeouts = 0;
  double link_thread_busy_share = 0;
  int64_t turns = 0;
  int64_t budget_bytes = 0;           // at the end
  int64_t budget_changes = 0;         // all of the run
  std::vector<std::string> breaches;  // with watch_wire
  uint64_t events = 0;                // of ns-3, all of the run
  double run_seconds = 0;             // of processor time
};

// Runs it. Returns InvalidArgument for options that make no sense, Unavailable where the workers could not be connected
// to. One at a time in a process, since ns-3 is global.
absl::StatusOr<IncastResult> RunIncast(const IncastOptions& options);

}  // namespace sluice::testing
