#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/fan_out/fan_out_run.h"
#include "lib/fan_out/fan_out_state.h"
#include "lib/fan_out/merge_sink.h"
#include "tests/simulation/simulated_callbacks.h"
#include "tests/simulation/simulated_network.h"

namespace sluice::testing {

// An aggregator, its workers, and the port between them, in virtual time. The seed determines everything: the number of
// workers and calls, how many of them hang, and all other faults. Breaches of the invariants are collected as text.
// There is one for each run.
class SimulatedWorld {
 public:
  static constexpr size_t kMinWorkers = 16;
  static constexpr size_t kMinCalls = 200;

  explicit SimulatedWorld(uint64_t seed);
  ~SimulatedWorld();

  void Run();

  const std::vector<std::string>& breaches() const { return network_.breaches; }
  const FaultCounts& faults() const { return network_.faults; }
  size_t workers() const { return network_.workers.size(); }
  size_t calls() const { return calls_; }
  size_t answered() const { return answered_; }
  // A digest of all events, in order. Two runs of a seed have the same digest.
  uint64_t digest() const { return network_.digest; }

 private:
  struct Asked;
  // A kind of fan-outs in some worlds. The others have no neighbours.
  enum class Kind { kOther, kQuery, kScan, kHeldStreams, kErrors };
  Kind DrawKind();
  void StartFanOut(Kind kind);
  absl::Duration DrawTimeout(Kind kind);
  void AskTheDead();
  void CloseTheDead();
  void OnDone(const std::shared_ptr<Asked>& asked, const FanOutResult& result);
  absl::Status OnMerge(Asked& asked, size_t worker, const std::string& answer);
  void CancelLater(const std::shared_ptr<FanOutRun>& run);

  SimulatedNetwork network_;
  Dice& dice_;
  EventQueue& events_;
  const SimulatedNetwork::Shape& shape_;
  std::unique_ptr<SimulatedCallbacks> callbacks_;
  std::unique_ptr<FanOutState> fan_out_;
  FanOutState::Addresses addresses_;
  std::unique_ptr<FanOutState> dead_fan_out_;  // of unreachable hosts; may be null
  FanOutState::Addresses dead_addresses_;

  size_t calls_ = 0;
  size_t answered_ = 0;
  size_t open_ = 0;
  uint64_t blocks_ = 0;   // fan-outs so far
  bool scanned_ = false;  // there was a scan
};

}  // namespace sluice::testing
