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

// Checks that no response waits too long at its worker. k counts the calls that hung, were late or missed packets while
// the response was ready, and the workers that paused. The response may then wait for the sum of
// - k + 1 stall timeouts,
// - the time in which the port sent other bytes, which were ahead of the response or took turns with it,
// - a round for each time that the port ran out of packets and became busy again,
// - a third of the time that workers thought about other requests. With `rolling`, a request holds room for its
//   response meanwhile, and a large response takes turns with such requests, part by part. The budget has three parts.
//
// A packet is missing from its loss until its sender repeats it. So a packet that was lost before the response was
// ready counts, too. Its bytes hold the budget, and later packets of its worker wait behind it.
//
// The bound is tighter if workers behind slow links are the only fault, and the schedule grants ready responses. The
// one stall timeout is then replaced by
// - two long laps for each part of the response. After these laps the slow workers are recognised, and hold a third of
//   the budget. A worker of a moderate rate ends each of its laps in time, so the next part may wait for it again.
// - a long lap for each third of the budget that came over slow links meanwhile. Such bytes hold the budget for a lap
//   at most, or their worker is recognised. They may precede the response, or fill the two thirds that it waits for.
//
// The response of a slow worker also waits for its own link, and the response of a paused worker for its process. A
// stream also waits for the application. Responses of a worker are not checked while its resets are rationed: the
// client may have given them up. There is one for each simulated world.
class Liveness {
 public:
  using Id = uint64_t;

  struct Bounds {
    TimePoint::duration stall_time{0};  // after which the schedule counts granted bytes as stalled
    TimePoint::duration round{0};       // of a request and its grant
    // The time after which the schedule counts a worker as slow. 0: it takes a stall timeout for that.
    TimePoint::duration long_lap{0};
    int64_t part_bytes = 1;  // of a response, sent at once: a third of the budget
  };
  // A worker, with the parts of it that cause delays.
  struct Sender {
    size_t worker = 0;
    const SimulatedProcess& process;
    const SimulatedUplink& uplink;
    bool slow = false;  // its uplink is slow at times
  };

  Liveness(const EventQueue& events, const SimulatedPort& port, const WireOracle& oracle, const Bounds& bounds)
      : events_(events), port_(port), oracle_(oracle), bounds_(bounds) {}
  // Sets the function that returns how long the application has processed messages since the start. Default: zero.
  void SetReadingTime(std::function<TimePoint::duration()> reading_time) { reading_time_ = std::move(reading_time); }

  // A worker receives a request to which it responds late or never, or it pauses.
  void HangBegins() { ++hangs_begun_, ++hangs_; }
  void HangEnds() { --hangs_; }

  // A worker begins to think about a request, for this time.
  void Thinks(TimePoint::duration time) { thought_ += time; }

  // Ready reports that a response of `bytes` is ready. Left reports that it has left its worker, or is no longer
  // wanted. The client gives it up at its deadline.
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
                                 .thought = thought_,
                                 .hangs = hangs_,
                                 .hangs_begun = hangs_begun_,
                                 .repeated_packets = port_.repeated_packets(),
                                 .sent = port_.sent_time(),
                                 .slow_bytes = port_.slow_bytes(),
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
  // Other responses are ahead of a response, or overtake a large one part by part. So it may wait for kShare times the
  // busy time of the port. Each part also takes a round.
  static constexpr double kShare = 4;
  static constexpr int kRounds = 15;
  static constexpr int kLaps = 2;
  static constexpr int kParts = 3;  // of the budget

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
    TimePoint::duration thought{0};
    int64_t hangs = 0;
    int64_t hangs_begun = 0;
    int64_t repeated_packets = 0;
    TimePoint::duration sent{0};
    int64_t slow_bytes = 0;
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
    const int64_t laps = kLaps * wait.parts + (port_.slow_bytes() - wait.slow_bytes) / bounds_.part_bytes;
    const TimePoint::duration others =
        strict ? laps * bounds_.long_lap : bounds_.stall_time + (thought_ - wait.thought) / kParts;
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
  TimePoint::duration thought_{0};
  int64_t hangs_ = 0;
  int64_t hangs_begun_ = 0;
  std::map<Id, Wait> waits_;
  Id last_ = 0;
  std::vector<std::string> breaches_;
};

}  // namespace sluice::testing
