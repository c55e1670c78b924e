#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/link/callbacks.h"
#include "lib/link/executor.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/faults.h"
#include "tests/simulation/simulated_worker.h"

namespace sluice::testing {

// The world of a link in virtual time: names are workers, streams cross the port. Each event is one turn of the link's
// thread. One a simulated world.
class SimulatedExecutor final : public Executor {
 public:
  SimulatedExecutor(EventQueue& events, Dice& dice, FaultCounts& faults, std::chrono::nanoseconds delay,
                    uint64_t connect_fault_one_in)
      : events_(events), dice_(dice), faults_(faults), delay_(delay), connect_fault_one_in_(connect_fault_one_in) {}
  ~SimulatedExecutor() override = default;

  void AddWorker(const std::string& address, SimulatedWorker& worker) { workers_[address] = &worker; }
  void set_faulty(bool faulty) { faulty_ = faulty; }
  // Runs `task` as a turn of the link's thread.
  void Turn(const std::function<void()>& task) {
    task();
    if (end_of_turn_) end_of_turn_();
  }

  TimePoint Now() const override { return events_.now(); }
  void Post(std::function<void()> task) override {
    events_.After(std::chrono::microseconds(dice_.Between(0, 20)), [this, task = std::move(task)] { Turn(task); });
  }
  void SetEndOfTurn(std::function<void()> task) override { end_of_turn_ = std::move(task); }
  void SetTimer(TimePoint time, std::function<void()> task) override {
    events_.Cancel(timer_);
    if (time == TimePoint::max()) return;
    // Timers are late now and then, by up to a millisecond.
    const auto late = std::chrono::microseconds(dice_.OneIn(10) ? dice_.Between(0, 1000) : 0);
    timer_ = events_.At(time + late, [this, task = std::move(task)] { Turn(task); });
  }
  double Random() override { return dice_.Fraction(); }
  std::shared_ptr<void> Resolve(const std::string& target, OnResolved on_resolved) override;
  std::unique_ptr<StreamSocket> Connect(const WorkerAddress& address, std::shared_ptr<const TlsContext> tls,
                                        const std::string& server_name, StreamSocketEvents& events) override;

 private:
  class Socket;

  EventQueue& events_;
  Dice& dice_;
  FaultCounts& faults_;
  const std::chrono::nanoseconds delay_;
  const uint64_t connect_fault_one_in_;
  bool faulty_ = true;
  std::function<void()> end_of_turn_;
  EventQueue::Id timer_;
  std::map<std::string, SimulatedWorker*> workers_;
};

// Callbacks of the application on a thread that is late by some microseconds, now and then by milliseconds.
class SimulatedCallbacks final : public Callbacks {
 public:
  SimulatedCallbacks(EventQueue& events, Dice& dice) : events_(events), dice_(dice) {}
  void Run(std::function<void()> callback, When /*when*/) override {
    const auto late = std::chrono::microseconds(dice_.OneIn(50) ? dice_.Between(0, 5000) : dice_.Between(0, 50));
    last_ = std::max(last_, events_.now() + late);
    events_.At(last_, std::move(callback));
  }

 private:
  EventQueue& events_;
  Dice& dice_;
  TimePoint last_;
};

}  // namespace sluice::testing
