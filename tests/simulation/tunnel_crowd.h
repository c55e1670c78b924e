#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/byte_client.h"
#include "tests/simulation/byte_worker.h"
#include "tests/simulation/simulated_network.h"

namespace sluice::testing {

// The byte tunnels of a proxied world, each with a worker of its own, through the proxy or as streams of the link.
// Their clients ask at the same time, as an aggregator does, and check every byte. There is one for each such world.
class TunnelCrowd {
 public:
  using Accept = std::function<void(AcceptedSocket client)>;  // by the proxy, in a turn of its own

  // The network must outlive it. Connects the clients.
  TunnelCrowd(SimulatedNetwork& network, Accept accept);

  // All clients that are idle ask, and ask again and again until Stop.
  void Ask();
  void Stop() { stopped_ = true; }

  size_t answered() const { return answered_; }
  size_t open() const;  // exchanges that have not ended, and must
  // After the end: counts what went wrong, and says how many packets nobody had counted on.
  void CheckEnd();

 private:
  struct Tunnel {
    std::unique_ptr<ByteWorker> worker;
    std::string address;
    bool stream = false;  // without the proxy
    std::unique_ptr<ByteClient> client;
    uint64_t exchanges = 0;  // that have begun
  };

  void Connect(Tunnel& tunnel);
  void Ask(Tunnel& tunnel);
  void OnOutcome(Tunnel& tunnel, const ByteClient::Outcome& outcome, bool must_be_complete);
  ByteRequest DrawRequest();
  bool Fails(uint64_t one_in);

  SimulatedNetwork& network_;
  Dice& dice_;
  const Accept accept_;
  const bool thinks_;
  bool stopped_ = false;
  size_t answered_ = 0;
  std::vector<std::unique_ptr<Tunnel>> tunnels_;
};

}  // namespace sluice::testing
