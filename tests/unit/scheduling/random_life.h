#pragma once

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/scheduling/link_schedule.h"
#include "tests/unit/scheduling/event_queue.h"
#include "tests/unit/scheduling/port_model.h"
#include "tests/unit/scheduling/random_schedule.h"
#include "tests/unit/scheduling/schedule_oracle.h"

namespace sluice::testing {

using std::chrono::nanoseconds;

inline constexpr int kMaxEvents = 20'000;  // of one seed; they take some hundreds

// How long before the schedule's lock a thread may have read its clock. What it reports happened before that.
inline constexpr nanoseconds kOvertaken{1000};

// Of an answer that is ready, frame included, unless its headers are large.
inline constexpr int64_t kHeaderBytes = 150;

// One random life of a schedule: clients, workers, a port and a host with late timers, all drawn from one seed. Workers
// send in one burst whatever they were granted, as those on persistent connections may; whatever happens, the port must
// not overflow.
class RandomLife {
 public:
  explicit RandomLife(uint64_t seed)
      : draws_(seed),
        byte_time_(Pick({1, 8, 80, 1000})),
        options_(RandomOptions(draws_, byte_time_)),
        buffer_bytes_(options_.profile.buffer_bytes + options_.profile.buffer_packets * options_.profile.frame_bytes),
        schedule_(options_),
        oracle_(options_, byte_time_, [this](uint32_t worker) { return schedule_.Load(worker); }),
        port_(buffer_bytes_, byte_time_),
        header_draws_(seed),
        room_draws_(~seed) {}

  // What went wrong; empty when nothing did.
  std::string Run() {
    for (int64_t i = Between(1, 8); i > 0; --i) Later(RandomTime(40), [this] { Submit(); });
    for (int64_t i = Between(0, 3); i > 0; --i) Later(RandomTime(40), [this] { CancelSome(); });
    for (int64_t i = Between(0, 5); i > 0; --i) Later(RandomTime(40), [this] { CancelOne(); });
    for (int64_t i = Between(0, 5); i > 0; --i) Later(RandomTime(40), [this] { GiveUpOne(); });
    for (int64_t i = Between(0, 3); i > 0; --i) Later(RandomTime(40), [this] { SubmitAhead(); });
    for (int64_t i = Between(0, 2); i > 0; --i) Later(RandomTime(40), [this] { ChangeBudget(); });
    for (int events = 0; !events_.empty() || timer_at_ < TimePoint::max(); ++events) {
      if (events == kMaxEvents) oracle_.Fail("it never ends");
      if (!oracle_.failure().empty()) return oracle_.failure();
      Step();
    }
    if (schedule_.State().ended_calls != schedule_.State().submitted_calls) oracle_.Fail("a call never ended");
    if (schedule_.State().in_flight_bytes != 0) oracle_.Fail("bytes stay in flight");
    if (schedule_.State().blocks != 0) oracle_.Fail("a block never ended");
    return oracle_.failure();
  }

 private:
  struct Answer {
    int64_t payload_bytes = 0;               // of the message that is being sent: not sent yet
    int64_t granted_bytes = 0;               // and not sent
    int64_t missing_bytes = 0;               // of the message: not received yet
    int messages = 0;                        // after this one
    int sends = 0;                           // of the request; what belongs to another one is void
    TimePoint silent_at = TimePoint::max();  // after an abort
    bool streams = false;                    // larger than the buffer
    bool came_with_request = false;
    bool in_parts = false;  // one more frame than what is charged may be under way
    TimePoint headers_charged_until = TimePoint::max();
    int64_t header_cost = 0;  // as the schedule knew it when the request left
    bool ahead = false;
    bool ready = false;  // the message is there
    bool out = false;
    bool ended = false;
    bool lost = false;  // nothing comes any more
    int attempts = 1;
  };

  void Step();

  // One event: the schedule takes it, or refuses it and is as it was; then the oracle, and what follows from the
  // actions.
  void Do(
      const std::function<bool(TimePoint now, std::vector<Action>& actions)>& event,
      const std::function<void()>& record = [] {}) {
    // Now and then a thread that was overtaken between the clock and the lock.
    const TimePoint seen = Chance(5) ? now_ - Between(0, 1) * kOvertaken : now_;
    std::vector<Action> actions;
    if (!event(seen, actions)) {
      if (!actions.empty()) oracle_.Fail("a refused event had actions");
      return;
    }
    const ScheduleState state = schedule_.State();
    oracle_.Begin(seen);
    record();
    oracle_.Apply(actions, state);
    for (const Action& action : actions) Follow(action);
    const TimePoint next = schedule_.NextTimer();
    oracle_.End(state, next);
    if (next != std::exchange(next_timer_, next)) timer_at_ = next == TimePoint::max() ? next : next + Lateness();
    const int64_t booked_bytes = oracle_.InFlightBytes() + oracle_.AllHeaderBytes();
    if (booked_bytes > buffer_bytes_ || oracle_.AnyStalled() || oracle_.UncountedBytes() > 0) overbooked_ = true;
    if (booked_bytes == 0 && !oracle_.AnyStalled() && port_.free_at() <= now_) overbooked_ = false;
  }

  // An event that is never refused.
  void Tell(
      const std::function<void(TimePoint now, std::vector<Action>& actions)>& event,
      const std::function<void()>& record = [] {}) {
    const auto takes = [&](TimePoint now, std::vector<Action>& actions) {
      event(now, actions);
      return true;
    };
    Do(takes, record);
  }

  void Follow(const Action& action);
  nanoseconds Lateness();
  // Headers of a response reach the schedule, which they do not in each life.
  void TellHeaders(uint64_t tag);
  void Submit();
  void SubmitAhead();

  // What a client expects is right, or it is not.
  void AddAnswer(int64_t expected_bytes, int attempts);
  void CancelSome();
  void CancelOne();
  void GiveUpOne();
  void ChangeBudget();
  void Unpark(uint64_t tag);

  // The request is out: the answer reaches the port after the round trip and the worker's time, as far as it is
  // granted; or the call fails, or hangs, or was not sent at all.
  void StartCall(uint64_t tag, int64_t bytes);
  void TakeGrant(uint64_t tag, int64_t bytes);
  void Hang(uint64_t tag);
  void Unsend(uint64_t tag);
  bool IsSilent(uint64_t tag, int send) const;

  // A message is there: its prefix comes, with grants in a packet of headers, and then what is granted of it.
  void BecomeReady(uint64_t tag, int send);
  void Ready(uint64_t tag, int send);
  void TellReady(uint64_t tag, int64_t remaining_bytes);
  void MakeRoomLater(uint64_t tag, int send);  // for the part of the message that the caller had no room for
  void SendData(uint64_t tag, int send);
  void Receive(uint64_t tag, int send, int64_t bytes);
  void MessageArrived(uint64_t tag);

  // What is charged is what is outstanding of a call; where that was granted in several parts, each of them may end in
  // a packet that is not full.
  int64_t Slack() const;

  // Of a schedule only unscheduled may overflow the port, and others after something did not fit the buffer by itself:
  // an answer larger than the buffer, the headers of silent workers, or bytes that had stalled.
  void NoRoom(std::function<void()> again);

  // The call fails on this side. Its worker hears of it half a round trip later, and nothing of it reaches the port
  // after a whole one.
  void Abort(uint64_t tag);
  void MaybeRetry(uint64_t tag);
  void Finish(uint64_t tag, CallEnd end);
  void Later(nanoseconds delay, std::function<void()> run) { events_.At(now_ + delay, std::move(run)); }

  int64_t Between(int64_t low, int64_t high) { return draws_.Between(low, high); }
  bool Chance(int64_t percent) { return draws_.Chance(percent); }
  int64_t Pick(std::initializer_list<int64_t> values) { return draws_.Pick(values); }
  nanoseconds Rtt() const { return absl::ToChronoNanoseconds(options_.profile.propagation_rtt); }
  // What a slow worker takes for bytes, beyond what the port does.
  nanoseconds SlowTime(uint64_t tag, int64_t bytes) const {
    const int64_t worker = oracle_.call(tag).worker;
    return worker % 10 < slow_in_ten_ ? 30 * bytes * byte_time_ : nanoseconds(0);
  }
  // Up to so many times what a full buffer takes to drain.
  nanoseconds RandomTime(int64_t buffers);
  RandomDraws draws_;
  const nanoseconds byte_time_;
  const ScheduleOptions options_;
  const int64_t buffer_bytes_;
  LinkSchedule schedule_;
  ScheduleOracle oracle_;
  PortModel port_;
  bool overbooked_ = false;
  const int64_t workers_ = Pick({1, 4, 100});  // and calls of none
  const int64_t slow_in_ten_ = Pick({0, 0, 1, 5});
  // Draws of their own, so that a seed is what it was before there were headers.
  RandomDraws header_draws_;
  const bool has_headers_ = header_draws_.Chance(50);
  const int64_t header_bytes_ = header_draws_.Pick({60, 400, 4000});
  const bool headers_vary_ = header_draws_.Chance(30);  // by what they are said to be; they are small
  // Draws of their own, too.
  RandomDraws room_draws_;
  const int64_t withholds_percent_ = room_draws_.Pick({0, 0, 5, 50});

  TimePoint now_{std::chrono::seconds(1)};
  TimePoint next_timer_ = TimePoint::max();
  TimePoint timer_at_ = TimePoint::max();
  EventQueue events_;
  std::vector<Answer> answers_;  // by tag
};

}  // namespace sluice::testing
