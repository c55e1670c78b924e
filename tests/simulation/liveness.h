#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/simulated_port.h"
#include "tests/simulation/simulated_process.h"
#include "tests/simulation/simulated_uplink.h"
#include "tests/simulation/wire_oracle.h"

namespace sluice::testing {

// Watches that no response waits for too long at its worker. With k calls that hung, or were late, or missed packets
// while it was ready, and with workers that paused, it waits at most for
//
// - k + 1 stall timeouts,
// - the time that the port took for what it sent meanwhile, since that was ahead of it, or took turns with it,
// - a round for each time that the port had to wait for something to send.
//
// A packet is missing from its loss until its sender repeats it. So a packet that was lost before the response was
// ready counts, too: its bytes hold the budget, and what its worker has sent since waits behind it.
//
// If workers behind slow links are all that goes wrong, and the schedule grants what is ready, the one stall timeout is
// two long laps for each part of the response: after these the slow workers are known, and hold a third of the budget.
// A worker of a moderate rate ends each of its laps in time, so the next part may wait for it again. The response of a
// slow worker also waits for its own link, that of a worker that paused for its own process, and a stream for the
// application. Responses of a worker are not checked
// while its resets are rationed: the client may have given them up. One for each simulated world.
class Liveness {
 public:
  using Id = uint64_t;

  struct Bounds {
    TimePoint::duration stall_time{0};  // in which the schedule takes granted bytes for stalled
    TimePoint::duration round{0};       // of a request and its grant
    TimePoint::duration long_lap{0};    // in which it takes a worker for slow; 0: it has a stall timeout for that
    int64_t part_bytes = 1;             // of a response, which leave at once
  };
  // A worker, and its own part in delays.
  struct Sender {
    size_t worker = 0;
    const SimulatedProcess& process;
    const SimulatedUplink& uplink;
    bool slow = false;  // its uplink, now and then
  };

  Liveness(const EventQueue& events, const SimulatedPort& port, const WireOracle& oracle, const Bounds& bounds)
      : events_(events), port_(port), oracle_(oracle), bounds_(bounds) {}
  // In which the application took messages, since the start. Without this it takes no time.
  void SetReadingTime(std::function<TimePoint::duration()> reading_time) { reading_time_ = std::move(reading_time); }

  // A worker takes a request that it will not answer, or late; or it pauses.
  void HangBegins() { ++hangs_begun_, ++hangs_; }
  void HangEnds() { --hangs_; }

  // A response of `bytes` is ready, and has left its worker or is not wanted any more. The client gives it up at its
  // deadline.
  Id Ready(TimePoint deadline, bool streaming, const Sender& sender, size_t bytes = 0) {
    waits_.emplace(++last_, Wait{.since = events_.now(),
                                 .deadline = deadline,
                                 .parts = 1 + static_cast<int64_t>(bytes) / bounds_.part_bytes,
                                 .streaming = streaming,
                                 .sender = sender,
                                 .stopped = sender.process.stopped_time(),
                                 .read = reading_time_(),
                                 .own_busy = sender.uplink.busy_time(),
                                 .own_busy_times = sender.uplink.busy_times(),
                                 .hangs = hangs_,
                                 .hangs_begun = hangs_begun_,
                                 .repeated_packets = port_.repeated_packets(),
                                 .sent = port_.sent_time(),
                                 .busy_times = port_.busy_times()});
    return last_;
  }
  void Left(Id id) {
    const auto found = waits_.find(id);
    Check(found->second);
    waits_.erase(found);
  }
  void CheckAll() {
    for (const auto& [id, wait] : waits_) Check(wait);
  }

  std::vector<std::string> TakeBreaches() { return std::exchange(breaches_, {}); }

 private:
  // Of the time that the port is busy while a response waits: what is ahead of it, or overtakes a large one part by
  // part; and beside each part there is a round.
  static constexpr double kShare = 4;
  static constexpr int kRounds = 15;
  static constexpr int kLaps = 2;

  struct Wait {
    TimePoint since;
    TimePoint deadline;
    int64_t parts = 1;
    bool streaming = false;
    Sender sender;
    TimePoint::duration stopped{0};
    TimePoint::duration read{0};
    TimePoint::duration own_busy{0};
    int64_t own_busy_times = 0;
    int64_t hangs = 0;
    int64_t hangs_begun = 0;
    int64_t repeated_packets = 0;
    TimePoint::duration sent{0};
    int64_t busy_times = 0;
  };

  void Check(const Wait& wait) {
    if (oracle_.rationed_until(wait.sender.worker) >= wait.since) return;
    TimePoint::duration waited = std::min(events_.now(), wait.deadline) - wait.since;
    waited -= wait.sender.process.stopped_time() - wait.stopped;
    if (wait.streaming) waited -= reading_time_() - wait.read;
    const int64_t missed = port_.lost_packets() - wait.repeated_packets;
    const int64_t hung = wait.hangs + hangs_begun_ - wait.hangs_begun + missed;
    const TimePoint::duration sent = port_.sent_time() - wait.sent + wait.sender.uplink.busy_time() - wait.own_busy;
    const int64_t rounds =
        kRounds + port_.busy_times() - wait.busy_times + wait.sender.uplink.busy_times() - wait.own_busy_times;
    const auto ahead = std::chrono::duration_cast<TimePoint::duration>(kShare * sent) + rounds * bounds_.round;
    const bool strict = bounds_.long_lap.count() > 0 && !wait.sender.slow;
    const TimePoint::duration others = strict ? kLaps * wait.parts * bounds_.long_lap : bounds_.stall_time;
    if (waited <= hung * bounds_.stall_time + others + ahead) return;
    const auto ms = [](TimePoint::duration time) { return time / std::chrono::milliseconds(1); };
    breaches_.push_back(absl::StrCat("a response that was ready has waited for ", ms(waited), " ms; ", hung,
                                     " calls hung or missed packets, and the port was busy for ", ms(sent), " ms"));
  }

  const EventQueue& events_;
  const SimulatedPort& port_;
  const WireOracle& oracle_;
  const Bounds bounds_;
  std::function<TimePoint::duration()> reading_time_ = [] { return TimePoint::duration(0); };
  int64_t hangs_ = 0;
  int64_t hangs_begun_ = 0;
  std::map<Id, Wait> waits_;
  Id last_ = 0;
  std::vector<std::string> breaches_;
};

}  // namespace sluice::testing
