#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/sharing/link_divider.h"

namespace sluice {

// A link, its daemon, and processes that read over it, in simulated time. Messages take time and keep their order;
// responses go through one port with a queue. A process uses its lease as LinkSchedule does: it requests a response if
// it fits, and nothing after the lease has ended. It reads blocks, one after the other. A process with classes of
// traffic divides its requests among its busy classes by the weights of its lease, or by its own. One thread.
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

  // A class of traffic of a process.
  struct Class {
    std::string name;
    double weight = 1;
    int64_t answer_bytes = 0;
    int64_t most_asked_bytes = std::numeric_limits<int64_t>::max();  // requests that wait or are in flight
  };

  size_t AddProcess(double weight, int64_t answer_bytes);
  size_t AddProcess(double weight, const std::vector<Class>& classes);  // all of its classes are idle
  void SetBusy(size_t process, bool busy);
  void SetClassBusy(size_t process, size_t traffic_class, bool busy);
  // An idle process makes one call to a worker that never responds, and gives it up after `patience`.
  void CallSlowWorker(size_t process, Duration patience);
  void SetAnswerBytes(size_t process, int64_t answer_bytes) {
    processes_[process]->classes[0].of.answer_bytes = answer_bytes;
  }
  void Stop(size_t process) { processes_[process]->stopped = true; }  // as SIGSTOP
  void Continue(size_t process);
  void Kill(size_t process);
  void SetBudget(int64_t bytes);

  void RunFor(Duration duration);
  void At(Duration from_now, std::function<void()> event) { events_.emplace(now_ + from_now, std::move(event)); }

  TimePoint now() const { return now_; }
  int64_t received_bytes(size_t process) const { return processes_[process]->received_bytes; }
  size_t classes(size_t process) const { return processes_[process]->classes.size(); }
  int64_t received_bytes(size_t process, size_t traffic_class) const {
    return processes_[process]->classes[traffic_class].received_bytes;
  }
  int64_t limit_bytes(size_t process) const { return processes_[process]->limit_bytes; }
  int64_t in_flight_bytes() const { return in_flight_bytes_; }            // actual total of all processes
  int64_t most_in_flight_bytes() const { return most_in_flight_bytes_; }  // since the start
  const LinkDivider& shares() const { return shares_; }

 private:
  struct ClassState {
    Class of;
    bool busy = false;
    double lead = 0;  // bytes by weight, as in ServiceOrder
    int64_t in_flight_bytes = 0;
    int64_t received_bytes = 0;

    bool asks() const { return busy && in_flight_bytes + of.answer_bytes <= of.most_asked_bytes; }
    int64_t DemandBytes(int64_t lots) const {
      return busy ? std::min(in_flight_bytes + lots, of.most_asked_bytes) : in_flight_bytes;
    }
  };
  struct Process {
    LinkDivider::ClientId id = 0;
    std::vector<ClassState> classes;    // one without a name if the process has no classes
    std::vector<double> class_weights;  // from its lease
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
    TimePoint reported_at;
    std::vector<bool> reported_wants;
    int64_t reported_in_flight_bytes = 0;
    TimePoint last_arrival;                      // of a message to the daemon; messages keep their order
    TimePoint last_delivery;                     // of a message from the daemon
    std::vector<std::function<void()>> on_wake;  // messages that arrived while it was stopped

    bool busy() const {
      return std::any_of(classes.begin(), classes.end(), [](const ClassState& each) { return each.busy; });
    }
    bool wants() const { return busy() || in_flight_bytes > 0 || thinking_bytes > 0; }
    std::vector<bool> ClassesThatWant() const;
  };

  int64_t LimitOf(const Process& process) const { return now_ < process.until ? process.limit_bytes : 0; }
  TimePoint LaterThan(TimePoint& last);
  void Ask(Process& process);
  static ClassState* NextClass(Process& process);
  static void ChargeTurn(Process& process, ClassState& asks);
  void Arrived(Process& process, ClassState& by, int64_t bytes);
  void AfterChange(Process& process);
  void StartBlock(Process& process);
  void ReportAfterPause(Process& process);
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
