#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lib/fan_out/fan_out_run.h"
#include "lib/fan_out/fan_out_state.h"
#include "lib/link/link_loop.h"
#include "lib/link/link_monitor.h"
#include "ns3/inet-socket-address.h"
#include "prometheus/registry.h"
#include "research/ns3/byte_tunnels.h"
#include "research/ns3/incast.h"
#include "research/ns3/network.h"
#include "research/ns3/ns3_executor.h"
#include "research/ns3/tcp_wire.h"
#include "tests/simulation/faults.h"
#include "tests/simulation/wire_oracle.h"

namespace sluice::testing {

// The schedule that the options describe.
ScheduleOptions ScheduleOf(const IncastOptions& options);

// The client of one host in a run: a link with its own schedule, and the load of fan-outs on it. Several aggregators in
// one network share no state. One for each receiving host. Not thread-safe.
class Aggregator {
 public:
  // Receives the events of all aggregators of a run.
  class Events {
   public:
    virtual ~Events() = default;
    // A fan-out arrives, and starts after this call.
    virtual void OnArrival(size_t aggregator, size_t number) = 0;
    virtual void OnEnd(const FanOutTime& time) = 0;
  };
  struct Target {
    std::string name;
    ns3::InetSocketAddress address;
  };

  // All of these must outlive the aggregator. `index` is its place in the network.
  Aggregator(const IncastOptions& options, Network& network, size_t index, const std::vector<Target>& workers,
             TcpWires& wires, Dice& dice, Events& events);

  // Calls `on_done` with the number of workers that could not be connected.
  void Connect(std::function<void(size_t unconnected)> on_done);
  void Begin();
  // Starts to count received bytes and the work of the link's thread.
  void BeginToCount();
  // Starts no more fan-outs, and ends all calls, so that all objects can be destroyed.
  void Stop();
  void Close(std::function<void()> on_closed);

  // Returns the fan-outs that have not ended, with their times so far.
  std::vector<FanOutTime> Open() const;
  // Returns whether a fan-out with this number counts: it arrived after the warm-up, and not too late.
  bool Counts(size_t number) const;
  const LinkSchedule& schedule() const { return loop_.schedule(); }
  int64_t received_bytes() const { return received_bytes_; }
  // How often a tunnel received bytes for which it had no turn.
  int64_t surprises() const;
  size_t failed_calls() const { return failed_calls_; }
  int64_t turns() const { return executor_.turns() - turns_before_; }
  std::chrono::nanoseconds busy_time() const { return executor_.busy_time() - busy_before_; }
  int64_t budget_changes() const { return budget_changes_; }
  std::vector<std::string> TakeBreaches();

 private:
  struct Query {
    size_t number = 0;
    int64_t bytes = 0;
    TimePoint arrived;
    size_t open_parts = 0;  // fan-outs of Sluice, or responses of tunnels
  };
  class Sink;

  FanOutTime TimeOf(const Query& query) const;
  void Arrive();
  void StartQuery();
  bool pauses() const { return index_ > 0 && options_.neighbour_pause.count() > 0; }  // between two fan-outs
  void StartQueryLater();
  std::vector<size_t> DrawWorkers();
  void AskTunnel(const std::shared_ptr<Query>& query, size_t worker, size_t bytes);
  void FillCap();
  void StartRun(const std::shared_ptr<Query>& query, std::vector<FanOutRun::Ask> asks);
  void OnRunEnd(const std::shared_ptr<Query>& query, const FanOutRun& run);
  void EndPart(const std::shared_ptr<Query>& query);

  const IncastOptions& options_;
  const size_t index_;
  Events& events_;
  // With a separate source, the load of a seed does not depend on the schedule.
  Dice load_dice_;
  std::unique_ptr<WireOracle> oracle_;
  Ns3Executor executor_;
  InlineCallbacks callbacks_;
  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  LinkMetrics metrics_{*registry_};
  LinkLoop loop_;
  FanOutState fan_out_;
  int64_t budget_changes_ = 0;
  LinkMonitor monitor_;
  FanOutState::Addresses addresses_;
  std::shared_ptr<const WorkerSet> workers_;
  ByteTunnels tunnels_{loop_};  // instead of fan_out_, with IncastOptions::tunnels

  bool over_ = false;
  int64_t turns_before_ = 0;
  std::chrono::nanoseconds busy_before_{0};
  size_t started_queries_ = 0;
  size_t failed_calls_ = 0;
  int64_t received_bytes_ = 0;
  std::set<std::shared_ptr<Query>> open_;
  size_t calls_out_ = 0;  // only with a static cap
  std::deque<std::pair<std::shared_ptr<Query>, FanOutRun::Ask>> waiting_;
};

}  // namespace sluice::testing
