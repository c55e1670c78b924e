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

// One simulated service: aggregators that call workers in fan-outs, over one network.
struct IncastOptions {
  Network::Options network;       // its numbers of hosts and connections are set from these options
  double buffer_taken_share = 0;  // share of the buffer that other traffic uses, unknown to the schedule
  int64_t told_buffer_bytes = 0;  // the buffer that the schedule is configured with; 0: the buffer of the network

  SchedulePolicy policy = SchedulePolicy::kGrants;
  bool shortest_first = true;
  bool paced = false;
  // 0: the budget starts as the buffer and shrinks after losses, as in Sluice. Otherwise a fixed number of bytes.
  int64_t budget_bytes = 0;
  // Byte tunnels instead of calls, with one request under way to each worker. They have turns with grants and rolling.
  bool tunnels = false;
  size_t static_cap = 0;  // maximum calls in flight of all fan-outs, in addition to the schedule; 0: no limit
  Ns3Executor::LinkThread link_thread;
  absl::Duration timer_jitter = LinkProfile().timer_jitter;  // the lateness of timers that the schedule allows for

  size_t workers = 32;
  size_t hosts = 0;        // shared by the workers; 0: one for each worker
  size_t aggregators = 1;  // each has its own link and port, and shares the workers
  bool peers = false;      // worker i runs on the host of aggregator i, which calls only the others
  size_t asked = 0;        // workers that a fan-out calls, drawn at random; 0: all
  std::optional<Distribution> sizes;
  std::optional<Distribution> think;
  std::chrono::nanoseconds jitter{0};  // of the workers' hosts
  // The response size that the schedule receives, as a multiple of the true size; 0: none.
  double announced_share = 0;

  double load = 0;         // open loop: Poisson arrivals that offer this share of the link; 0: closed loop
  size_t burst = 1;        // open loop: fan-outs that arrive together
  size_t concurrency = 1;  // closed loop: fan-outs at a time of each aggregator
  // Closed loop: mean pause of the other aggregators between a fan-out and the next one.
  std::chrono::nanoseconds neighbour_pause{0};
  size_t warm_up = 2;  // fan-outs of the first aggregator that do not count
  size_t fan_outs = 10;

  std::optional<VictimFlow::Options> victim;

  // Checks all bytes of the connections against the budget; for rolling and grants, without tunnels.
  bool watch_wire = false;
  uint64_t seed = 1;
  absl::Duration longest = absl::Seconds(100);            // simulated time
  absl::Duration longest_run = absl::InfiniteDuration();  // of CPU time
};

struct FanOutTime {
  size_t aggregator = 0;
  size_t number = 0;   // counts the fan-outs of its aggregator from 0
  int64_t bytes = 0;   // sum of all responses
  double seconds = 0;  // until its end, or so far
};

struct IncastResult {
  size_t fan_outs = 0;    // that have ended and count, of all aggregators
  size_t unfinished = 0;  // that count and have not ended; their times are the times so far
  size_t failed_calls = 0;
  double seconds = 0;      // simulated seconds that count
  double goodput_bps = 0;  // mean of the aggregators
  double first_goodput_bps = 0;
  double link_busy_share = 0;  // bytes that the bottlenecks have sent, as a share of their capacity
  std::vector<double> fan_out_seconds;
  std::vector<FanOutTime> times;  // the same times
  std::vector<double> victim_seconds;
  PortQueue::Counts bottleneck;  // sums over the ports of all aggregators, and their longest queue
  int64_t other_drops = 0;
  int64_t retransmission_timeouts = 0;
  int64_t surprises = 0;  // of tunnels: pieces that came without a turn, of all aggregators in the whole run
  double link_thread_busy_share = 0;
  int64_t turns = 0;
  int64_t budget_bytes = 0;    // at the end, of the first aggregator
  int64_t budget_changes = 0;  // sum over all aggregators, in the whole run
  // With peers: the mean of the bytes that are granted and have not come, and the part of them that waits at the
  // uplinks of their senders.
  double granted_bytes = 0;
  double stranded_bytes = 0;
  std::vector<std::string> breaches;  // with watch_wire
  uint64_t events = 0;                // of ns-3, in the whole run
  double run_seconds = 0;             // of CPU time
};

// Returns the time of a response of this size in the idle network, with an open TCP window. It is a round trip, the
// time that its packets take on the last link, and the time that one packet takes on the link before.
double IdleSeconds(const IncastOptions& options, int64_t bytes);

// Runs the simulation. Returns InvalidArgument for inconsistent options, and Unavailable if a worker could not be
// connected. Call it once at a time in a process, because ns-3 is global.
absl::StatusOr<IncastResult> RunIncast(const IncastOptions& options);

}  // namespace sluice::testing
