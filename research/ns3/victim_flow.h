#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "lib/scheduling/link_schedule.h"
#include "research/ns3/network.h"
#include "tests/simulation/faults.h"

namespace sluice::testing {

// Somebody else's traffic to the aggregator's host through the same port: messages on TCP connections that stay open,
// at times of a Poisson process. A message that finds all connections busy waits for one, and its time counts from its
// arrival. One a simulation, or none.
class VictimFlow {
 public:
  struct Options {
    int64_t message_bytes = 10'000;
    std::chrono::nanoseconds mean_pause{1'000'000};
    size_t connections = 8;
  };
  // Connects from this host to the aggregator's. All of these outlive it.
  VictimFlow(Network& network, const Host& from, Dice& dice, const Options& options);
  ~VictimFlow();
  VictimFlow(const VictimFlow&) = delete;
  VictimFlow& operator=(const VictimFlow&) = delete;

  // Messages come from now on, and count.
  void Start();
  void Stop() { running_ = false; }
  // Times of the messages that have arrived, in seconds, with those under way as long as they have taken so far.
  std::vector<double> Times() const;

 private:
  struct Connection;
  using Seconds = std::chrono::duration<double>;

  void Arrive();
  void Send(Connection& connection, TimePoint arrived);
  void Received(Connection& connection, int64_t bytes);

  Network& network_;
  Dice& dice_;
  const Options options_;
  bool running_ = false;
  ns3::Ptr<HostSocket> listener_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::deque<TimePoint> waiting_;
  std::vector<double> times_;
};

}  // namespace sluice::testing
