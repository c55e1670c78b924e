#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/simulated_port.h"

namespace sluice::testing {

// Watches that no answer waits for too long at its worker: with k calls that hung, or were late, or lost packets while
// it was ready, for k + 1 stall timeouts, the time that the port took for what it sent meanwhile, and a round for each
// time that it had to wait for something to send, at most. One a simulated world.
class Liveness {
 public:
  using Id = uint64_t;

  // `stall_time`: in which the schedule takes granted bytes for stalled. `round`: of a request and its grant.
  Liveness(const EventQueue& events, const SimulatedPort& port, TimePoint::duration stall_time,
           TimePoint::duration round)
      : events_(events), port_(port), stall_time_(stall_time), round_(round) {}

  // A worker takes a request that it will not answer, or late.
  void HangBegins() { ++hangs_begun_, ++hangs_; }
  void HangEnds() { --hangs_; }

  // An answer is ready, and has left its worker or is not wanted any more. The client gives it up at its deadline.
  Id Ready(TimePoint deadline) {
    waits_.emplace(++last_, Wait{.since = events_.now(),
                                 .deadline = deadline,
                                 .hangs = hangs_,
                                 .hangs_begun = hangs_begun_,
                                 .lost_packets = port_.lost_packets(),
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
  // What the port sends while an answer waits is ahead of it, or overtakes a large one part by part; and beside each
  // part there is a round.
  static constexpr double kShare = 4;
  static constexpr int kRounds = 50;

  struct Wait {
    TimePoint since;
    TimePoint deadline;
    int64_t hangs = 0;
    int64_t hangs_begun = 0;
    int64_t lost_packets = 0;
    TimePoint::duration sent{0};
    int64_t busy_times = 0;
  };

  void Check(const Wait& wait) {
    const TimePoint::duration waited = std::min(events_.now(), wait.deadline) - wait.since;
    const int64_t hung = wait.hangs + hangs_begun_ - wait.hangs_begun + port_.lost_packets() - wait.lost_packets;
    const TimePoint::duration sent = port_.sent_time() - wait.sent;
    const int64_t rounds = kRounds + port_.busy_times() - wait.busy_times;
    const auto ahead = std::chrono::duration_cast<TimePoint::duration>(kShare * sent) + rounds * round_;
    if (waited <= (hung + 1) * stall_time_ + ahead) return;
    const auto ms = [](TimePoint::duration time) { return time / std::chrono::milliseconds(1); };
    breaches_.push_back(absl::StrCat("an answer that was ready has waited for ", ms(waited), " ms; ", hung,
                                     " calls hung or lost packets, and the port was busy for ", ms(sent), " ms"));
  }

  const EventQueue& events_;
  const SimulatedPort& port_;
  const TimePoint::duration stall_time_;
  const TimePoint::duration round_;
  int64_t hangs_ = 0;
  int64_t hangs_begun_ = 0;
  std::map<Id, Wait> waits_;
  Id last_ = 0;
  std::vector<std::string> breaches_;
};

}  // namespace sluice::testing
