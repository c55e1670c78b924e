#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lib/net/executor.h"
#include "tests/simulation/byte_worker.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/faults.h"
#include "tests/simulation/simulated_worker.h"
#include "tests/simulation/wire_oracle.h"

namespace sluice::testing {

// The environment of a link in virtual time: names are workers, and streams cross the port. Tasks that are ready wait
// until the link's thread wakes up, slightly later, and at times milliseconds later. They then all run in one turn.
// Only tasks of the same connection keep their order. There is one for each simulated world.
class SimulatedExecutor final : public Executor {
 public:
  struct Options {
    std::chrono::nanoseconds delay{0};  // of the network, one way
    uint64_t connect_fault_one_in = 0;  // one in this many connections fails; 0: none
    uint64_t late_turn_one_in = 100;    // one in this many turns is late
  };
  // The arguments must outlive the executor.
  SimulatedExecutor(EventQueue& events, Dice& dice, FaultCounts& faults, WireOracle& oracle, const Options& options)
      : events_(events), dice_(dice), faults_(faults), oracle_(oracle), options_(options) {}

  void AddWorker(const std::string& address, SimulatedWorker& worker);
  void AddByteWorker(const std::string& address, ByteWorker& worker) { byte_workers_[address] = &worker; }
  void AddDead(const std::string& address) { dead_.insert(address); }  // an unreachable host
  void set_faulty(bool faulty) { faulty_ = faulty; }
  // Runs `task` now, as a turn of its own.
  void Turn(const std::function<void()>& task);
  // The source of an event. Events of one source keep their order.
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
  class ByteSocket;
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
  std::unordered_map<std::string, ByteWorker*> byte_workers_;
  std::unordered_set<std::string> dead_;
};

}  // namespace sluice::testing
