#include <algorithm>
#include <functional>
#include <iterator>
#include <queue>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sluice/link_schedule.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/random_seed.h"
#include "tests/scheduling/port_model.h"
#include "tests/scheduling/schedule_oracle.h"

namespace sluice {
namespace {

using std::chrono::nanoseconds;

constexpr int kSeeds = 6'000;
constexpr int kMaxEvents = 20'000;  // of one seed; they take some hundreds

// How long before the schedule's lock a thread may have read its clock. What it reports happened before that.
constexpr nanoseconds kOvertaken{1000};

// Of an answer that is ready, frame included.
constexpr int64_t kHeaderBytes = 150;

// One random life of a schedule: clients, workers, a port and a host with late timers, all drawn from one seed. Workers
// answer in one burst, or a part at a time where their connections bound it, as those on persistent connections may;
// whatever happens, the port must not overflow.
class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : random_(seed),
        byte_time_(Pick({1, 8, 80, 1000})),
        options_(RandomOptions()),
        buffer_bytes_(options_.profile.buffer_bytes + options_.profile.buffer_packets * options_.profile.frame_bytes),
        schedule_(*LinkSchedule::Create(options_)),
        oracle_(options_, byte_time_),
        port_(buffer_bytes_, byte_time_) {}

  // What went wrong; empty when nothing did.
  std::string Run() {
    for (int64_t i = Between(1, 8); i > 0; --i) Later(RandomTime(40), [this] { Submit(); });
    for (int64_t i = Between(0, 3); i > 0; --i) Later(RandomTime(40), [this] { CancelSome(); });
    for (int64_t i = Between(0, 5); i > 0; --i) Later(RandomTime(40), [this] { CancelOne(); });
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
  struct Event {
    TimePoint at;
    uint64_t order;
    std::function<void()> run;
    bool operator>(const Event& other) const { return std::pair(at, order) > std::pair(other.at, other.order); }
  };

  struct Answer {
    int64_t payload_bytes = 0;  // still to come; what was expected may be wrong where answers are announced
    TimePoint silent_at = TimePoint::max();  // after an abort
    bool streams = false;                    // larger than the buffer
    bool ended = false;
    bool sent = false;
    bool lost = false;  // after its grant
    int attempts = 1;
  };

  LinkSchedule::Options RandomOptions() {
    LinkSchedule::Options options;
    options.discipline = static_cast<Discipline>(std::min<int64_t>(Between(0, 5), 3));
    LinkProfile& profile = options.profile;
    profile.capacity_bytes_per_second = 1e9 / static_cast<double>(byte_time_.count());
    profile.packet_payload_bytes = Pick({1000, 1448});
    profile.frame_bytes = profile.packet_payload_bytes + Pick({0, 40, 66});
    profile.buffer_packets = Chance(25) ? Between(2, 60) : 0;
    profile.buffer_bytes = profile.buffer_packets > 0 ? 0 : Between(2000, 100'000);
    profile.propagation_rtt = absl::Microseconds(Between(1, 2000));
    profile.timer_granularity = absl::Microseconds(Pick({50, 1000}));
    profile.timer_jitter = absl::Microseconds(Pick({20, 200}));
    if (Chance(30)) {
      const int64_t buffer = profile.buffer_bytes + profile.buffer_packets * profile.frame_bytes;
      options.budget_bytes = Between(1, buffer);
    }
    if (Chance(25)) options.max_in_flight_per_call_bytes = Between(500, 20'000);
    options.stall_timeout = absl::Microseconds(Between(1, Chance(20) ? 1000 : 1'000'000));
    options.queue_limit = Chance(20) ? Between(1, 40) : 1000;
    return options;
  }

  void Step() {
    if (events_.empty() || timer_at_ <= events_.top().at) {
      now_ = timer_at_;
      Do([this](TimePoint now, std::vector<Action>& actions) {
        schedule_.OnTimer(now, actions);
        return true;
      });
      return;
    }
    now_ = events_.top().at;
    const std::function<void()> run = events_.top().run;
    events_.pop();
    run();
  }

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
    if (oracle_.InFlightBytes() + oracle_.HeaderBytes() > buffer_bytes_) overbooked_ = true;
    if (oracle_.InFlightBytes() + oracle_.HeaderBytes() == 0 && port_.free_at() <= now_) overbooked_ = false;
  }

  void Follow(const Action& action) {
    switch (action.kind) {
      case Action::Kind::kSend:
        return StartCall(action.tag, options_.discipline == Discipline::kGrants);
      case Action::Kind::kSendGranted:
        return StartCall(action.tag, false);
      case Action::Kind::kGrant:
        answers_.at(action.tag).lost = Chance(4);
        return StartAnswer(action.tag, nanoseconds(0));
      case Action::Kind::kStall:
        if (!answers_.at(action.tag).lost) overbooked_ = true;
        return;
      case Action::Kind::kAbort:
        return Later(nanoseconds(Between(0, 100'000)), [this, tag = action.tag] { Abort(tag); });
      case Action::Kind::kExpire:
      case Action::Kind::kDrop:
        return;
    }
  }

  nanoseconds Lateness() {
    if (Chance(30)) return nanoseconds(0);
    if (Chance(5)) return RandomTime(4);  // a hiccup of the host
    return nanoseconds(Between(0, absl::ToInt64Nanoseconds(options_.profile.timer_jitter)));
  }

  void Submit() {
    std::vector<CallRequest> calls(Between(1, Chance(10) ? 60 : 12));
    const int64_t size = Between(0, buffer_bytes_ / Pick({1, 2, 8}));
    for (CallRequest& call : calls) {
      call.response_bytes = Chance(30) ? Between(0, Chance(10) ? 2 * buffer_bytes_ : size) : size;
      call.tag = answers_.size();
      call.estimated = Chance(50);
      answers_.push_back({.payload_bytes = call.response_bytes});
    }
    const TimePoint deadline = Chance(30) ? TimePoint::max() : now_ + nanoseconds(1) + RandomTime(60);
    BlockId block = 0;
    Do(
        [&](TimePoint now, std::vector<Action>& actions) {
          const int64_t room = options_.queue_limit - schedule_.State().waiting_calls;
          const absl::StatusOr<BlockId> id = schedule_.Submit(now, calls, deadline, actions);
          if (id.ok() != (static_cast<int64_t>(calls.size()) <= room)) oracle_.Fail("the queue limit is not kept");
          if (!id.ok()) answers_.resize(answers_.size() - calls.size());
          block = id.value_or(0);
          return id.ok();
        },
        [&] { oracle_.Submitted(block, calls, deadline); });
  }

  void CancelSome() {
    if (oracle_.blocks().empty()) return;
    const auto block = std::next(oracle_.blocks().begin(), Between(0, std::ssize(oracle_.blocks()) - 1));
    const BlockId id = block->first;
    Do(
        [&](TimePoint now, std::vector<Action>& actions) {
          schedule_.Cancel(now, id, actions);
          return true;
        },
        [&] { oracle_.Cancelled(id); });
  }

  void CancelOne() {
    std::vector<uint64_t> sent;
    for (uint64_t tag = 0; tag < answers_.size(); ++tag) {
      if (answers_[tag].sent) sent.push_back(tag);
    }
    if (sent.empty()) return;
    const uint64_t tag = sent[Between(0, std::ssize(sent) - 1)];
    const CallId id = oracle_.call(tag).id;
    Do(
        [&](TimePoint now, std::vector<Action>& actions) {
          schedule_.CancelCall(now, id, actions);
          return true;
        },
        [&] { oracle_.CallCancelled(tag); });
  }

  void ChangeBudget() {
    const int64_t bytes = Between(1, buffer_bytes_);
    Do([&](TimePoint now, std::vector<Action>& actions) { return schedule_.SetBudget(now, bytes, actions).ok(); },
       [&] { oracle_.BudgetSet(bytes); });
  }

  // The request is out: the answer, or its headers where it is held, reach the port after the round trip and the
  // worker's time, or the call fails first.
  void StartCall(uint64_t tag, bool held) {
    answers_.at(tag).sent = true;
    const nanoseconds think = RandomTime(Chance(20) ? 20 : 1);
    if (Chance(8)) Later(RandomTime(20), [this, tag] { Abort(tag); });
    if (!held) return StartAnswer(tag, think);
    Later(Rtt() + think, [this, tag] { SendHeaders(tag); });
  }

  void SendHeaders(uint64_t tag) {
    if (now_ > answers_.at(tag).silent_at) return;
    const int64_t bytes = options_.profile.buffer_packets > 0 ? options_.profile.frame_bytes : kHeaderBytes;
    const std::optional<TimePoint> left = port_.Burst(now_, bytes);
    if (!left.has_value()) return NoRoom([this, tag] { SendHeaders(tag); });
    Later(*left - now_ + nanoseconds(Between(0, 20'000)), [this, tag] { Ready(tag); });
  }

  void Ready(uint64_t tag) {
    Answer& answer = answers_.at(tag);
    if (answer.ended) return;
    std::optional<int64_t> announced;
    if (Chance(30)) announced = answer.payload_bytes = Between(0, Chance(10) ? 2 * buffer_bytes_ : buffer_bytes_ / 4);
    const CallId id = oracle_.call(tag).id;
    Do(
        [&](TimePoint now, std::vector<Action>& actions) {
          schedule_.OnReady(now, id, announced, actions);
          return true;
        },
        [&] { oracle_.Readied(tag, announced); });
  }

  void StartAnswer(uint64_t tag, nanoseconds think) {
    Later(Rtt() + think, [this, tag] { ReachPort(tag); });
    if (answers_.at(tag).lost) Later(RandomTime(100), [this, tag] { Finish(tag, CallEnd::kArrived); });
  }

  // As much of the answer as its connection lets out at once.
  void ReachPort(uint64_t tag) {
    Answer& answer = answers_.at(tag);
    if (answer.lost || now_ > answer.silent_at) return;
    const int64_t part =
        std::min(answer.payload_bytes, options_.max_in_flight_per_call_bytes.value_or(answer.payload_bytes));
    const int64_t bytes = oracle_.BufferBytes(part);
    answer.streams = bytes > buffer_bytes_;
    const std::optional<TimePoint> left = answer.streams ? port_.Stream(now_, bytes) : port_.Burst(now_, bytes);
    if (!left.has_value()) return NoRoom([this, tag] { ReachPort(tag); });
    if (answer.streams) port_.StopStream(answer.silent_at);
    answer.payload_bytes -= part;
    Later(*left - now_ + nanoseconds(Between(0, 20'000)), [this, tag] { PartArrived(tag); });
  }

  void PartArrived(uint64_t tag) {
    const Answer& answer = answers_.at(tag);
    if (answer.payload_bytes > 0) {
      if (Chance(50)) Progress(tag, answer.payload_bytes * Pick({1, 1, 2}));
      return Later(Rtt(), [this, tag] { ReachPort(tag); });
    }
    if (Chance(10)) Progress(tag, Between(-1, buffer_bytes_));  // more may come; it does not
    Finish(tag, CallEnd::kArrived);
  }

  void Progress(uint64_t tag, int64_t remaining_bytes) {
    if (answers_.at(tag).ended) return;
    const CallId id = oracle_.call(tag).id;
    Do(
        [&](TimePoint now, std::vector<Action>& actions) {
          schedule_.OnProgress(now, id, remaining_bytes, actions);
          return true;
        },
        [&] { oracle_.Progressed(tag, std::max<int64_t>(remaining_bytes, 0)); });
  }

  // Of a schedule only unscheduled may overflow the port, and grants after something did not fit the buffer by itself:
  // an answer larger than the buffer, or the headers of nothing but stragglers.
  void NoRoom(std::function<void()> again) {
    const bool may =
        options_.discipline == Discipline::kUnscheduled || (options_.discipline == Discipline::kGrants && overbooked_);
    if (!may) return oracle_.Fail("the port overflowed");
    Later(std::max(port_.free_at() - now_, nanoseconds(0)) + nanoseconds(1), std::move(again));
  }

  // The call fails on this side. Its worker hears of it half a round trip later, and nothing of it reaches the port
  // after a whole one.
  void Abort(uint64_t tag) {
    Answer& answer = answers_.at(tag);
    if (answer.ended) return;
    answer.silent_at = now_ - kOvertaken + Rtt();
    if (answer.streams) port_.StopStream(answer.silent_at);
    MaybeRetry(tag);
    Finish(tag, CallEnd::kAborted);
  }

  void MaybeRetry(uint64_t tag) {
    const ScheduleOracle::Call call = oracle_.call(tag);
    const ScheduleOracle::Block& block = oracle_.blocks().at(call.block);
    if (answers_.at(tag).attempts == 3 || Chance(30)) return;
    const CallRequest retry{
        .response_bytes = Between(0, buffer_bytes_), .tag = answers_.size(), .estimated = Chance(50)};
    answers_.push_back({.payload_bytes = retry.response_bytes, .attempts = answers_.at(tag).attempts + 1});
    Do(
        [&](TimePoint now, std::vector<Action>& actions) {
          const bool over = block.cancelled || block.deadline <= std::max(now, oracle_.now());
          const bool added = schedule_.Add(now, call.block, retry, actions).ok();
          if (added == over) oracle_.Fail("a retry was added to a block that is over, or refused by one that is not");
          if (!added) answers_.pop_back();
          return added;
        },
        [&] { oracle_.Added(call.block, retry); });
  }

  void Finish(uint64_t tag, CallEnd end) {
    if (std::exchange(answers_.at(tag).ended, true)) return;
    const CallId id = oracle_.call(tag).id;
    const auto finish = [this, id, end](TimePoint now, std::vector<Action>& actions) {
      schedule_.OnFinished(now, id, end, actions);
      return true;
    };
    Do(finish, [&] { oracle_.Finished(tag, end); });
    if (Chance(5)) Do(finish);  // a second time changes nothing, now or later
    if (Chance(5)) Later(RandomTime(10), [this, finish] { Do(finish); });
  }

  void Later(nanoseconds delay, std::function<void()> run) {
    events_.push({now_ + delay, next_event_++, std::move(run)});
  }

  int64_t Between(int64_t low, int64_t high) { return low + static_cast<int64_t>(random_() % (high - low + 1)); }
  bool Chance(int64_t percent) { return Between(1, 100) <= percent; }
  int64_t Pick(std::initializer_list<int64_t> values) { return *(values.begin() + Between(0, std::ssize(values) - 1)); }
  nanoseconds Rtt() const { return absl::ToChronoNanoseconds(options_.profile.propagation_rtt); }
  // Up to so many times what a full buffer takes to drain.
  nanoseconds RandomTime(int64_t buffers) {
    return nanoseconds(Between(0, buffers * buffer_bytes_ * byte_time_.count()));
  }

  std::mt19937_64 random_;
  const nanoseconds byte_time_;
  const LinkSchedule::Options options_;
  const int64_t buffer_bytes_;
  LinkSchedule schedule_;
  ScheduleOracle oracle_;
  PortModel port_;
  bool overbooked_ = false;

  TimePoint now_{std::chrono::seconds(1)};
  TimePoint next_timer_ = TimePoint::max();
  TimePoint timer_at_ = TimePoint::max();
  uint64_t next_event_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Answer> answers_;  // by tag
};

TEST(LinkScheduleRandomTest, KeepsItsInvariantsAndNeverOverflowsThePort) {
  auto [seed, replays] = TakeRandomSeed();
  ASSERT_FALSE(HasFailure());
  const int seeds = replays ? 1 : kSeeds;
  RecordProperty("first_seed", std::to_string(seed));
  for (const uint64_t last = seed + seeds; seed < last; ++seed) {
    ASSERT_EQ(Simulation(seed).Run(), "") << "replay with SLUICE_SEED=" << seed;
  }
}

}  // namespace
}  // namespace sluice
