#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/net/executor.h"
#include "tests/simulation/event_queue.h"

namespace sluice::testing {

// The environment of a link in virtual time. Each event is a separate turn, and events run in the order of their times,
// so a test is exact to the nanosecond and repeatable. There is one for each test. Not thread-safe.
class VirtualExecutor final : public Executor {
 public:
  static constexpr TimePoint::duration kDelay = std::chrono::microseconds(100);  // of the network, one way

  // A peer that the link may connect to.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual std::unique_ptr<StreamSocket> Accept(StreamSocketEvents& events) = 0;
  };
  uint64_t NextInode() { return ++last_inode_; }
  // Counts the sockets whose TCP_INFO was queried, by time.
  void CountTcpInfo() { ++tcp_infos_[Now()]; }
  const std::map<TimePoint, size_t>& tcp_infos() const { return tcp_infos_; }
  void Listen(const std::string& address, Listener& listener) { listeners_[address] = &listener; }

  // Runs `task` as a turn, now or after a pause.
  void Turn(const std::function<void()>& task) {
    task();
    if (end_of_turn_) end_of_turn_();
  }
  void After(TimePoint::duration pause, std::function<void()> task) {
    events_.After(pause, [this, task = std::move(task)] { Turn(task); });
  }
  // Timers of the link's thread fire this late.
  void set_timer_lateness(TimePoint::duration lateness) { timer_lateness_ = lateness; }

  void RunFor(TimePoint::duration time) {
    const TimePoint end = Now() + time;
    bool over = false;
    events_.At(end, [&over] { over = true; });
    while (!over) events_.Step(end);
  }
  // Returns false if the condition did not become true within `patience`.
  bool RunUntil(const std::function<bool()>& condition, TimePoint::duration patience = std::chrono::hours(1)) {
    const TimePoint end = Now() + patience;
    while (!condition()) {
      if (!events_.Step(end)) return false;
    }
    return true;
  }

  TimePoint Now() const override { return events_.now(); }
  void Post(std::function<void()> task) override { After({}, std::move(task)); }
  void SetEndOfTurn(std::function<void()> task) override { end_of_turn_ = std::move(task); }
  void SetTimer(TimePoint time, std::function<void()> task) override {
    events_.Cancel(timer_);
    timer_ = {};
    if (time == TimePoint::max()) return;
    timer_ = events_.At(time + timer_lateness_, [this, task = std::move(task)] { Turn(task); });
  }
  double Random() override { return 0.5; }
  std::shared_ptr<void> Resolve(const std::string& target, OnResolved on_resolved) override {
    auto asked = std::make_shared<OnResolved>(std::move(on_resolved));
    After({}, [target, weak = std::weak_ptr<OnResolved>(asked)] {
      if (const auto asked = weak.lock()) {
        const OnResolved tell = *asked;  // the call may destroy it
        tell(std::vector<WorkerAddress>{{target}});
      }
    });
    return asked;
  }
  std::unique_ptr<StreamSocket> Connect(const WorkerAddress& address, const ConnectOptions&,
                                        StreamSocketEvents& events) override {
    return listeners_.at(address.text)->Accept(events);
  }

 private:
  EventQueue events_;
  std::function<void()> end_of_turn_;
  EventQueue::Id timer_;
  TimePoint::duration timer_lateness_{0};
  std::map<std::string, Listener*> listeners_;
  uint64_t last_inode_ = 0;
  std::map<TimePoint, size_t> tcp_infos_;
};

}  // namespace sluice::testing
