#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "lib/net/executor.h"
#include "ns3/event-id.h"
#include "ns3/inet-socket-address.h"
#include "research/ns3/network.h"
#include "research/ns3/tcp_wire.h"
#include "tests/simulation/faults.h"
#include "tests/simulation/wire_oracle.h"

namespace sluice::testing {

// The executor of a link inside ns-3: its clock, its timers and its TCP. One turn of the link's thread handles all
// events that are ready at one time. By default the thread takes no time. With LinkThread, events that become ready
// during a turn wait for the next turn, and the bytes that a turn writes are sent when it reaches them. One for each
// aggregator. Not thread-safe.
class Ns3Executor final : public Executor {
 public:
  // The costs of the link's thread. By default it takes no time.
  struct LinkThread {
    std::chrono::nanoseconds turn{0};  // of each turn, in addition to its events
    std::chrono::nanoseconds read{0};  // of reading all available bytes of a connection
    std::chrono::nanoseconds write{0};
    std::chrono::nanoseconds timer_step{0};   // timers fire at multiples of it, and late; 0: at any time
    std::chrono::nanoseconds timers_late{0};  // maximum, uniformly distributed
  };
  // All of these must outlive the executor, which runs on the host of this aggregator. `oracle` checks all bytes of the
  // connections, or is null.
  Ns3Executor(Network& network, size_t aggregator, TcpWires& wires, Dice& dice, WireOracle* oracle,
              const LinkThread& thread)
      : network_(network), aggregator_(aggregator), wires_(wires), dice_(dice), oracle_(oracle), thread_(thread) {}
  ~Ns3Executor() override;

  void AddWorker(const std::string& target, const ns3::InetSocketAddress& address);
  int64_t turns() const { return turns_; }
  std::chrono::nanoseconds busy_time() const { return busy_time_; }

  TimePoint Now() const override;
  void Post(std::function<void()> task) override { Ready(std::move(task)); }
  void SetEndOfTurn(std::function<void()> task) override { end_of_turn_ = std::move(task); }
  void SetTimer(TimePoint time, std::function<void()> task) override;
  double Random() override { return dice_.Fraction(); }
  std::shared_ptr<void> Resolve(const std::string& target, OnResolved on_resolved) override;
  std::unique_ptr<StreamSocket> Connect(const WorkerAddress& address, const ConnectOptions& options,
                                        StreamSocketEvents& events) override;

 private:
  class Socket;
  class Handle;
  struct Listener {
    ns3::InetSocketAddress address;
    size_t index = 0;
  };

  void Ready(std::function<void()> task);
  void RunReady();
  // Adds a cost to the turn, and returns the turn's total so far.
  std::chrono::nanoseconds Spend(std::chrono::nanoseconds cost) { return turn_cost_ += cost; }

  Network& network_;
  const size_t aggregator_;
  TcpWires& wires_;
  Dice& dice_;
  WireOracle* const oracle_;
  const LinkThread thread_;
  std::function<void()> end_of_turn_;
  std::vector<std::function<void()>> ready_;
  ns3::EventId waking_;
  ns3::EventId timer_;
  TimePoint timer_time_ = TimePoint::max();
  TimePoint idle_at_;
  std::chrono::nanoseconds turn_cost_{0};
  std::chrono::nanoseconds busy_time_{0};
  int64_t turns_ = 0;
  WireOracle::ConnectionId last_connection_ = 0;
  std::unordered_map<std::string, Listener> workers_;
};

}  // namespace sluice::testing
