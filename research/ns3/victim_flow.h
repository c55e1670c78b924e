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

// Other traffic to the host of the first aggregator through the same port: messages on persistent TCP connections, at
// the times of a Poisson process. A message that finds all connections busy waits for one, and its time counts from its
// arrival. At most one for each simulation. Not thread-safe.
class VictimFlow {
 public:
  struct Options {
    int64_t message_bytes = 10'000;
    std::chrono::nanoseconds mean_pause{1'000'000};
    size_t connections = 8;
  };
  // Connects from this host to the aggregator's. All of these must outlive the flow.
  VictimFlow(Network& network, const Host& from, Dice& dice, const Options& options);
  ~VictimFlow();
  VictimFlow(const VictimFlow&) = delete;
  VictimFlow& operator=(const VictimFlow&) = delete;

  // Starts the messages. Messages count from now on.
  void Start();
  void Stop() { running_ = false; }
  // Returns the times of the arrived messages in seconds, and for messages in progress the time so far.
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
