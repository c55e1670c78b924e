#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/link/link_loop.h"
#include "prometheus/registry.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/faults.h"
#include "tests/simulation/liveness.h"
#include "tests/simulation/simulated_executor.h"
#include "tests/simulation/simulated_port.h"
#include "tests/simulation/simulated_worker.h"
#include "tests/simulation/wire_oracle.h"
#include "tests/simulation/world_shape.h"

namespace sluice::testing {

// The part of a simulated world below the fan-outs: a link, its workers, and the port between them, in virtual time.
// Its random choices follow from the seed. It checks the invariants of the link, and collects breaches as text. There
// is one for each world.
struct SimulatedNetwork {
  using Shape = WorldShape;
  static constexpr size_t kFailingWorkers = 2;  // the first ones, with Neighbours::kErrors

  SimulatedNetwork(uint64_t seed, const Shape& shape);

  // Ends all faults, runs for `pause`, and checks that the link is then idle.
  void CheckIdle(TimePoint::duration pause);
  void Breach(const std::string& what);
  // A counter of the registry, by the value of its only label.
  uint64_t Counter(const std::string& name, const std::string& label = "") const;
  // Makes all workers end their calls with errors for `pause`.
  void FailAll(TimePoint::duration pause);
  size_t DrawClass();  // of a fan-out
  bool IsSlow(size_t worker) const { return worker >= shape.workers - shape.slow_workers; }
  bool Fails(size_t worker) const { return shape.neighbours == Neighbours::kErrors && worker < kFailingWorkers; }
  void Note(uint64_t what) { digest = (digest ^ what) * 1099511628211u; }

  Dice dice;
  const Shape shape;
  EventQueue events;
  FaultCounts faults;
  std::vector<std::string> breaches;
  uint64_t digest = 1469598103934665603u;  // of all events, in order
  // How many packets may overflow the port, since nobody has counted on them.
  int64_t uncharged_packets = 0;

  ScheduleOptions schedule;
  int64_t budget_bytes = 0;
  std::chrono::nanoseconds delay{0};  // one way
  std::unique_ptr<SimulatedPort> port;
  std::unique_ptr<WireOracle> oracle;
  std::unique_ptr<Liveness> liveness;
  std::vector<std::unique_ptr<SimulatedWorker>> workers;
  std::vector<std::string> addresses;       // of the workers
  std::vector<std::string> dead_addresses;  // of unreachable hosts
  std::unique_ptr<SimulatedExecutor> executor;
  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  std::unique_ptr<LinkMetrics> metrics;
  std::unique_ptr<LinkLoop> loop;

 private:
  void DrawSchedule();
  void AddWorkers();
  int64_t WaitingRequests() const;
  void DrawRates();
  void SwitchLater();
  void Switch();

  void CheckPort(uint64_t stalls);

  // Number of packets in the charge of the budget for which the port had no room.
  int64_t overflows_ = 0;
  Dice switches_;  // draws the times and the policies of the switches
  size_t switches_left_ = 0;
  bool unscheduled_ = false;  // at any time so far
};

}  // namespace sluice::testing
