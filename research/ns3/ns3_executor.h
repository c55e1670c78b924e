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

// The world of a link inside ns-3: its clock, its timers and its TCP. What becomes ready at one time is one turn of the
// link's thread. The thread takes no time, or what LinkThread says; then what becomes ready meanwhile waits for the
// next turn, and what a turn writes leaves when it has got so far. One a simulation.
class Ns3Executor final : public Executor {
 public:
  // What the link's thread costs; zeros: nothing.
  struct LinkThread {
    std::chrono::nanoseconds turn{0};  // each, beside what is in it
    std::chrono::nanoseconds read{0};  // of a connection, as much as is there
    std::chrono::nanoseconds write{0};
    std::chrono::nanoseconds timers_late{0};  // at most, uniformly
  };
  // All of these outlive it. `oracle` sees all bytes of the connections; null: nobody does.
  Ns3Executor(Network& network, TcpWires& wires, Dice& dice, WireOracle* oracle, const LinkThread& thread)
      : network_(network), wires_(wires), dice_(dice), oracle_(oracle), thread_(thread) {}
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
  // Says that the turn has done something that costs, and returns how far in it that is.
  std::chrono::nanoseconds Spend(std::chrono::nanoseconds cost) { return turn_cost_ += cost; }

  Network& network_;
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
