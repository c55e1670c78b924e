#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/fan_out/fan_out_core.h"
#include "lib/fan_out/fan_out_run.h"
#include "lib/fan_out/merge_sink.h"
#include "lib/link/link_core.h"
#include "prometheus/registry.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/faults.h"
#include "tests/simulation/liveness.h"
#include "tests/simulation/simulated_callbacks.h"
#include "tests/simulation/simulated_executor.h"
#include "tests/simulation/simulated_port.h"
#include "tests/simulation/simulated_worker.h"
#include "tests/simulation/wire_oracle.h"

namespace sluice::testing {

// An aggregator, its workers, and the port between them, in virtual time. Everything in it follows from the seed: how
// many workers and calls there are, how many of them hang, and what else goes wrong. Breaches of what always holds are
// collected as text. One a run.
class SimulatedWorld {
 public:
  static constexpr size_t kLeastWorkers = 16;
  static constexpr size_t kLeastCalls = 200;

  explicit SimulatedWorld(uint64_t seed);
  ~SimulatedWorld();

  void Run();

  const std::vector<std::string>& breaches() const { return breaches_; }
  const FaultCounts& faults() const { return faults_; }
  size_t workers() const { return workers_.size(); }
  size_t calls() const { return calls_; }
  size_t answered() const { return answered_; }
  // A digest of everything that happened, in order: two runs of a seed have the same.
  uint64_t digest() const { return digest_; }

 private:
  struct Asked;
  // What a world is like.
  struct Shape {
    size_t workers = kLeastWorkers;
    size_t hung_workers = 0;
    bool faults = true;
    bool losses = false;  // of packets, for other reasons than the port's buffer
    bool storm = false;   // of cancelled fan-outs, more than there may be resets
    bool slow_reader = false;
  };

  Shape DrawShape(uint64_t seed);
  LinkSchedule::Options DrawSchedule();
  void StartFanOut();
  void OnDone(const std::shared_ptr<Asked>& asked, const FanOutResult& result);
  absl::Status OnMerge(Asked& asked, size_t worker, const std::string& answer);
  void CancelLater(const std::shared_ptr<FanOutRun>& run);
  void CheckIdle();
  void CountStalls();
  void Breach(const std::string& what);
  void Note(uint64_t what) { digest_ = (digest_ ^ what) * 1099511628211u; }

  Dice dice_;
  const Shape shape_;
  EventQueue events_;
  FaultCounts faults_;
  std::vector<std::string> breaches_;
  uint64_t digest_ = 1469598103934665603u;

  LinkSchedule::Options schedule_;
  int64_t budget_bytes_ = 0;
  std::chrono::nanoseconds delay_{0};
  std::unique_ptr<SimulatedPort> port_;
  std::unique_ptr<WireOracle> oracle_;
  std::unique_ptr<Liveness> liveness_;
  std::vector<std::unique_ptr<SimulatedWorker>> workers_;
  std::unique_ptr<SimulatedExecutor> executor_;
  std::unique_ptr<SimulatedCallbacks> callbacks_;
  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  std::unique_ptr<AggregatorMetrics> metrics_;
  std::unique_ptr<LinkCore> core_;
  std::unique_ptr<FanOutCore> fan_out_;
  FanOutCore::Addresses addresses_;

  size_t calls_ = 0;
  size_t answered_ = 0;
  size_t open_ = 0;
};

}  // namespace sluice::testing
