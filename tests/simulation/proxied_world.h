#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/proxy/proxy_loop.h"
#include "tests/simulation/simulated_client.h"
#include "tests/simulation/simulated_network.h"
#include "tests/simulation/tunnel_crowd.h"

namespace sluice::testing {

// Applications, their proxy, its workers, and the port between proxy and workers, in virtual time. Calls and byte
// tunnels share the port. Some clients stop reading, disappear, or cancel calls. The seed determines everything. There
// is one for each run.
class ProxiedWorld {
 public:
  static constexpr size_t kMinCalls = 200;

  explicit ProxiedWorld(uint64_t seed);
  ~ProxiedWorld();

  void Run();

  const std::vector<std::string>& breaches() const { return network_.breaches; }
  const FaultCounts& faults() const { return network_.faults; }
  size_t calls() const { return calls_; }
  size_t answered() const { return answered_; }
  uint64_t digest() const { return network_.digest; }

 private:
  void StartFanOut();
  void Ask(const std::shared_ptr<SimulatedClient>& client, SimulatedClient::Request request, bool healthy);
  void OnOutcome(const SimulatedClient::Request& request, const SimulatedClient::Outcome& outcome, bool must_be_right);
  std::shared_ptr<SimulatedClient>& NextClient();
  std::shared_ptr<SimulatedClient> NewClient(SimulatedClient::Habit habit);
  void CheckHeld();
  void CheckEnd();

  SimulatedNetwork network_;
  Dice& dice_;
  EventQueue& events_;
  std::unique_ptr<ProxyMetrics> metrics_;
  std::unique_ptr<ProxyLoop> proxy_;
  std::unique_ptr<TunnelCrowd> tunnels_;
  std::vector<std::shared_ptr<SimulatedClient>> clients_;  // at least one of them reads
  bool drains_ = false;
  bool drained_ = false;
  size_t calls_ = 0;
  size_t answered_ = 0;
  size_t wrong_ = 0;  // responses that ended with OK and have the wrong content
  size_t open_ = 0;   // calls of clients that read
  uint64_t blocks_ = 0;
};

}  // namespace sluice::testing
