#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "lib/sharing/link_divider.h"

namespace sluice {

// A link, its daemon, and processes that read over it, in simulated time. Messages take time and keep their order;
// responses go through one port with a queue. A process uses its lease as LinkSchedule does: it requests a response if
// it fits, and nothing after the lease has ended. It reads blocks, one after the other. One thread.
class ShareSimulation {
 public:
  using Duration = std::chrono::nanoseconds;

  struct Options {
    LinkDivider::Options shares;
    double bytes_per_second = 12.5e6;
    Duration rtt = std::chrono::microseconds(200);
    std::function<Duration()> message_delay = [] { return std::chrono::microseconds(50); };
  };
  explicit ShareSimulation(Options options);

  size_t AddProcess(double weight, int64_t answer_bytes);
  void SetBusy(size_t process, bool busy);
  // An idle process makes one call to a worker that never responds, and gives it up after `patience`.
  void CallSlowWorker(size_t process, Duration patience);
  void SetAnswerBytes(size_t process, int64_t answer_bytes) { processes_[process]->answer_bytes = answer_bytes; }
  void Stop(size_t process) { processes_[process]->stopped = true; }  // as SIGSTOP
  void Continue(size_t process);
  void Kill(size_t process);
  void SetBudget(int64_t bytes);

  void RunFor(Duration duration);
  void At(Duration from_now, std::function<void()> event) { events_.emplace(now_ + from_now, std::move(event)); }

  TimePoint now() const { return now_; }
  int64_t received_bytes(size_t process) const { return processes_[process]->received_bytes; }
  int64_t limit_bytes(size_t process) const { return processes_[process]->limit_bytes; }
  int64_t in_flight_bytes() const { return in_flight_bytes_; }            // actual total of all processes
  int64_t most_in_flight_bytes() const { return most_in_flight_bytes_; }  // since the start
  const LinkDivider& shares() const { return shares_; }

 private:
  struct Process {
    LinkDivider::ClientId id = 0;
    int64_t answer_bytes = 0;
    bool busy = false;
    bool stopped = false;
    bool dead = false;
    int64_t limit_bytes = 0;
    TimePoint until = TimePoint::max();
    uint64_t acknowledged = 0;
    int64_t in_flight_bytes = 0;  // as the process counts it
    int64_t thinking_bytes = 0;   // requested from workers that have not begun to send
    int64_t received_bytes = 0;
    uint64_t block = 0;
    int64_t block_bytes = 0;  // bytes received of the block
    TimePoint block_since;
    uint64_t reported_block = 0;
    uint64_t reports = 0;
    bool reported_wants = false;
    int64_t reported_in_flight_bytes = 0;
    TimePoint last_arrival;                      // of a message to the daemon; messages keep their order
    TimePoint last_delivery;                     // of a message from the daemon
    std::vector<std::function<void()>> on_wake;  // messages that arrived while it was stopped

    bool wants() const { return busy || in_flight_bytes > 0 || thinking_bytes > 0; }
  };

  int64_t LimitOf(const Process& process) const { return now_ < process.until ? process.limit_bytes : 0; }
  TimePoint LaterThan(TimePoint& last);
  void Ask(Process& process);
  void Arrived(Process& process, int64_t bytes);
  void AfterChange(Process& process);
  void StartBlock(Process& process);
  void Report(Process& process);
  void Deliver(const std::vector<ShareLease>& leases);
  void OnLease(Process& process, const ShareLease& lease, TimePoint until);
  void OnTimer();

  const Options options_;
  TimePoint now_ = TimePoint(std::chrono::seconds(1));
  LinkDivider shares_;
  std::multimap<TimePoint, std::function<void()>> events_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::map<LinkDivider::ClientId, TimePoint> report_sent_at_;  // of the last report that arrived
  TimePoint port_free_at_;
  TimePoint timer_at_ = TimePoint::max();
  int64_t in_flight_bytes_ = 0;
  int64_t most_in_flight_bytes_ = 0;
};

}  // namespace sluice
