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

inline constexpr int kMaxEvents = 20'000;  // of one seed; most seeds take some hundreds

// A thread may have read its clock this long before it got the schedule's lock. Its event happened before that.
inline constexpr nanoseconds kOvertaken{1000};

// Size of the headers of a ready response, frame included, unless they are large.
inline constexpr int64_t kHeaderBytes = 150;

// One random life of a schedule: clients, workers, a port and a host with late timers, all drawn from one seed. Workers
// send all granted bytes in one burst, as they may on persistent connections. The port must never overflow.
class RandomLife {
 public:
  explicit RandomLife(uint64_t seed)
      : draws_(seed),
        byte_time_(Pick({1, 8, 80, 1000})),
        class_draws_(seed ^ 0x5555),
        pace_draws_(seed ^ 0x9797),
        options_(Paced(WithClasses(RandomOptions(draws_, byte_time_)))),
        buffer_bytes_(options_.profile.buffer_bytes + options_.profile.buffer_packets * options_.profile.frame_bytes),
        schedule_(options_),
        oracle_(options_, byte_time_, [this](uint32_t worker) { return schedule_.Load(worker); }),
        port_(buffer_bytes_, byte_time_),
        header_draws_(seed),
        room_draws_(~seed),
        policy_draws_(seed ^ 0xaaaa) {}

  // Runs the life. Returns the first failure, or an empty string.
  std::string Run() {
    for (int64_t i = Between(1, 8); i > 0; --i) Later(RandomTime(40), [this] { Submit(); });
    for (int64_t i = Between(0, 3); i > 0; --i) Later(RandomTime(40), [this] { CancelSome(); });
    for (int64_t i = Between(0, 5); i > 0; --i) Later(RandomTime(40), [this] { CancelOne(); });
    for (int64_t i = Between(0, 5); i > 0; --i) Later(RandomTime(40), [this] { GiveUpOne(); });
    for (int64_t i = Between(0, 3); i > 0; --i) Later(RandomTime(40), [this] { SubmitAhead(); });
    for (int64_t i = Between(0, 2); i > 0; --i) Later(RandomTime(40), [this] { ChangeBudget(); });
    const int64_t switches = policy_draws_.Chance(40) ? policy_draws_.Between(1, 4) : 0;
    for (int64_t i = 0; i < switches; ++i) {
      const int64_t after_ns = policy_draws_.Between(0, 40 * buffer_bytes_ * byte_time_.count());
      Later(nanoseconds(after_ns), [this] { ChangePolicy(); });
    }
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
    int64_t payload_bytes = 0;               // unsent bytes of the current message
    int64_t granted_bytes = 0;               // granted and unsent
    int64_t missing_bytes = 0;               // bytes of the current message that were not received
    int messages = 0;                        // messages after the current one
    int sends = 0;                           // sends of the request; events of earlier sends are ignored
    TimePoint silent_at = TimePoint::max();  // after an abort
    bool streams = false;                    // larger than the buffer
    bool came_with_request = false;
    bool sends_headers = false;  // in a packet of their own, that the schedule keeps room for: it left with grants
    bool in_parts = false;       // one more frame than the charge covers may be under way
    TimePoint headers_charged_until = TimePoint::max();
    int64_t header_cost = 0;  // the schedule's cost of headers when the request left
    bool ahead = false;
    bool ready = false;  // the current message is ready
    bool out = false;
    bool ended = false;
    bool lost = false;  // no more bytes arrive
    int attempts = 1;
  };

  void Step();

  // Runs one event. The schedule accepts it, or refuses it and does not change. Then the oracle records the event, and
  // the actions are carried out.
  void Do(
      const std::function<bool(TimePoint now, std::vector<Action>& actions)>& event,
      const std::function<void()>& record = [] {}) {
    // A thread may be overtaken between reading the clock and taking the lock.
    const TimePoint seen = Chance(5) ? now_ - Between(0, 1) * kOvertaken : now_;
    std::vector<Action> actions;
    if (!event(seen, actions)) {
      if (!actions.empty()) oracle_.Fail("a refused event had actions");
      return;
    }
    const ScheduleState state = schedule_.State();
    oracle_.Begin(seen);
    record();
    std::vector<TrafficClassState> classes;
    for (size_t i = 0; i < options_.class_count(); ++i) classes.push_back(schedule_.ClassState(i));
    oracle_.Apply(actions, state);
    for (const Action& action : actions) Follow(action);
    const TimePoint next = schedule_.NextTimer();
    oracle_.End(state, next);
    oracle_.CheckClasses(classes);
    if (next != std::exchange(next_timer_, next)) timer_at_ = next == TimePoint::max() ? next : next + Lateness();
    const int64_t booked_bytes = oracle_.InFlightBytes() + oracle_.AllHeaderBytes();
    const bool excess = oracle_.AnyStalled() || oracle_.AnyUnbounded() || now_ < switched_on_until_;
    if (booked_bytes > buffer_bytes_ || excess || oracle_.UncountedBytes() > 0) overbooked_ = true;
    if (booked_bytes == 0 && !excess && port_.free_at() <= now_) overbooked_ = false;
  }

  // Runs an event that is never refused.
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
  // Reports headers of a response to the schedule, in some lives.
  void TellHeaders(uint64_t tag);
  void Submit();
  void SubmitAhead();

  // Adds a response whose expected size may be right or wrong.
  void AddAnswer(int64_t expected_bytes, int attempts);
  void CancelSome();
  void CancelOne();
  void GiveUpOne();
  void ChangeBudget();
  void ChangePolicy();
  bool MayBatch() const { return options_.classes.empty() && !options_.paced; }
  void Unpark(uint64_t tag);

  // Starts a call whose request is out. The granted bytes of its response reach the port after a round trip and the
  // think time. Otherwise the call fails, hangs, or was not sent.
  void StartCall(uint64_t tag, int64_t bytes);
  void TakeGrant(uint64_t tag, int64_t bytes);
  void Hang(uint64_t tag);
  void Unsend(uint64_t tag);
  bool IsSilent(uint64_t tag, int send) const;

  // Makes a message ready. Its prefix arrives (with grants in a packet of headers), followed by its granted bytes.
  void BecomeReady(uint64_t tag, int send);
  void Ready(uint64_t tag, int send);
  void TellReady(uint64_t tag, int64_t remaining_bytes);
  void MakeRoomLater(uint64_t tag, int send);  // for the part of the message that was withheld
  void SendData(uint64_t tag, int send);
  void Receive(uint64_t tag, int send, int64_t bytes);
  void MessageArrived(uint64_t tag);

  // Returns the bytes by which the port may exceed the charges. A charge covers the outstanding bytes of a call, but
  // each part of several grants may end in a packet that is not full.
  int64_t Slack() const;

  // Called if a burst does not fit the port. Only unscheduled may overflow it, or a schedule after an event that
  // exceeds the buffer by itself. Such events are a response larger than the buffer, headers of silent workers, and
  // stalled bytes.
  void NoRoom(std::function<void()> again);

  // The call fails on this side. Its worker receives the abort half a round trip later, and after a round trip no bytes
  // of the call reach the port.
  void Abort(uint64_t tag);
  void MaybeRetry(uint64_t tag);
  void Finish(uint64_t tag, CallEnd end);
  void Later(nanoseconds delay, std::function<void()> run) { events_.At(now_ + delay, std::move(run)); }

  int64_t Between(int64_t low, int64_t high) { return draws_.Between(low, high); }
  bool Chance(int64_t percent) { return draws_.Chance(percent); }
  int64_t Pick(std::initializer_list<int64_t> values) { return draws_.Pick(values); }
  nanoseconds Rtt() const { return absl::ToChronoNanoseconds(options_.profile.propagation_rtt); }
  // The time that a slow worker takes to send bytes, in addition to the time of the port.
  nanoseconds SlowTime(uint64_t tag, int64_t bytes) const {
    const int64_t worker = oracle_.call(tag).worker;
    return worker % 10 < slow_in_ten_ ? 30 * bytes * byte_time_ : nanoseconds(0);
  }
  // Returns a random time of up to `buffers` drain times of a full buffer.
  nanoseconds RandomTime(int64_t buffers);
  ScheduleOptions WithClasses(ScheduleOptions options);
  ScheduleOptions Paced(ScheduleOptions options);

  RandomDraws draws_;
  const nanoseconds byte_time_;
  RandomDraws class_draws_;  // separate draws for classes
  RandomDraws pace_draws_;
  ScheduleOptions options_;
  const int64_t buffer_bytes_;
  LinkSchedule schedule_;
  ScheduleOracle oracle_;
  PortModel port_;
  bool overbooked_ = false;
  const int64_t workers_ = Pick({1, 4, 100});  // calls may also have no worker
  const int64_t slow_in_ten_ = Pick({0, 0, 1, 5});
  // Separate draws for headers, so that they do not change the other draws of a seed.
  RandomDraws header_draws_;
  const bool has_headers_ = header_draws_.Chance(50);
  const int64_t header_bytes_ = header_draws_.Pick({60, 400, 4000});
  const bool headers_vary_ = header_draws_.Chance(30);  // reported sizes vary; real headers are small
  // Separate draws for withheld bytes.
  RandomDraws room_draws_;
  RandomDraws policy_draws_;  // separate draws for changes of the policy
  // After unscheduled: bytes of aborted calls, which it does not charge, may come until then.
  TimePoint switched_on_until_;
  const int64_t withholds_percent_ = room_draws_.Pick({0, 0, 5, 50});

  TimePoint now_{std::chrono::seconds(1)};
  TimePoint next_timer_ = TimePoint::max();
  TimePoint timer_at_ = TimePoint::max();
  EventQueue events_;
  std::vector<Answer> answers_;  // by tag
};

}  // namespace sluice::testing
