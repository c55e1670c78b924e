#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lib/net/executor.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/faults.h"
#include "tests/simulation/simulated_worker.h"
#include "tests/simulation/wire_oracle.h"

namespace sluice::testing {

// The world of a link in virtual time: names are workers, streams cross the port. What becomes ready waits until the
// link's thread wakes up, a little later, now and then by milliseconds; all of it is one turn then, in any order but
// that of each connection. One a simulated world.
class SimulatedExecutor final : public Executor {
 public:
  struct Options {
    std::chrono::nanoseconds delay{0};  // of the network, one way
    uint64_t connect_fault_one_in = 0;  // of all connections; 0: none goes wrong
    uint64_t late_turn_one_in = 100;    // of all turns
  };
  // All of these outlive it.
  SimulatedExecutor(EventQueue& events, Dice& dice, FaultCounts& faults, WireOracle& oracle, const Options& options)
      : events_(events), dice_(dice), faults_(faults), oracle_(oracle), options_(options) {}

  void AddWorker(const std::string& address, SimulatedWorker& worker);
  void AddDead(const std::string& address) { dead_.insert(address); }  // a host that is away
  void set_faulty(bool faulty) { faulty_ = faulty; }
  // Runs `task` as a turn of its own, now.
  void Turn(const std::function<void()>& task);
  // Where an event comes from; those of one source keep their order.
  using Source = uint64_t;
  Source NewSource() { return ++last_source_; }
  // Runs `task` on the link's thread, in the next turn.
  void Ready(Source source, std::function<void()> task);

  TimePoint Now() const override { return events_.now(); }
  void Post(std::function<void()> task) override { Ready(kPosts, std::move(task)); }
  void SetEndOfTurn(std::function<void()> task) override { end_of_turn_ = std::move(task); }
  void SetTimer(TimePoint time, std::function<void()> task) override;
  double Random() override { return dice_.Fraction(); }
  std::shared_ptr<void> Resolve(const std::string& target, OnResolved on_resolved) override;
  std::unique_ptr<StreamSocket> Connect(const WorkerAddress& address, const ConnectOptions& options,
                                        StreamSocketEvents& events) override;

 private:
  class Socket;
  struct Listener {
    SimulatedWorker* worker = nullptr;
    size_t index = 0;
  };
  static constexpr Source kTimer = 0;
  static constexpr Source kPosts = 1;
  struct ReadyTask {
    Source source = 0;
    std::function<void()> task;
  };

  void RunReady();
  void Shuffle(std::vector<ReadyTask>& tasks);

  EventQueue& events_;
  Dice& dice_;
  FaultCounts& faults_;
  WireOracle& oracle_;
  const Options options_;
  bool faulty_ = true;
  std::function<void()> end_of_turn_;
  std::vector<ReadyTask> ready_;
  bool waking_ = false;
  EventQueue::Id timer_;
  TimePoint timer_time_ = TimePoint::max();
  Source last_source_ = kPosts;
  std::unordered_map<std::string, Listener> listeners_;
  std::unordered_set<std::string> dead_;
};

}  // namespace sluice::testing
