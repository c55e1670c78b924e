#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "sluice/link_schedule.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/random_seed.h"
#include "tests/scheduling/event_queue.h"
#include "tests/scheduling/port_model.h"
#include "tests/scheduling/random_schedule.h"
#include "tests/scheduling/schedule_oracle.h"

namespace sluice {
namespace {

using std::chrono::nanoseconds;

constexpr int kSeeds = 1'500;
constexpr int kMaxEvents = 20'000;  // of one seed; they take some hundreds

// How long before the schedule's lock a thread may have read its clock. What it reports happened before that.
constexpr nanoseconds kOvertaken{1000};

// Of an answer that is ready, frame included.
constexpr int64_t kHeaderBytes = 150;

// One random life of a schedule: clients, workers, a port and a host with late timers, all drawn from one seed. Workers
// send in one burst whatever they were granted, as those on persistent connections may; whatever happens, the port must
// not overflow.
class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : draws_(seed),
        byte_time_(Pick({1, 8, 80, 1000})),
        options_(RandomOptions(draws_, byte_time_)),
        buffer_bytes_(options_.profile.buffer_bytes + options_.profile.buffer_packets * options_.profile.frame_bytes),
        schedule_(*LinkSchedule::Create(options_)),
        oracle_(options_, byte_time_),
        port_(buffer_bytes_, byte_time_) {}

  // What went wrong; empty when nothing did.
  std::string Run() {
    for (int64_t i = Between(1, 8); i > 0; --i) Later(RandomTime(40), [this] { Submit(); });
    for (int64_t i = Between(0, 3); i > 0; --i) Later(RandomTime(40), [this] { CancelSome(); });
    for (int64_t i = Between(0, 5); i > 0; --i) Later(RandomTime(40), [this] { CancelOne(); });
    for (int64_t i = Between(0, 3); i > 0; --i) Later(RandomTime(40), [this] { SubmitAhead(); });
    for (int64_t i = Between(0, 5); i > 0; --i) Later(RandomTime(40), [this] { ParkOne(); });
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
    bool in_parts = false;           // one more frame than what is charged may be under way
    bool uncharged_headers = false;  // aborted as a straggler
    bool ahead = false;
    bool ready = false;  // the message is there
    bool out = false;
    bool ended = false;
    bool lost = false;  // nothing comes any more
    int attempts = 1;
  };

  void Step() {
    if (timer_at_ <= events_.next()) {
      now_ = timer_at_;
      Do([this](TimePoint now, std::vector<Action>& actions) {
        schedule_.OnTimer(now, actions);
        return true;
      });
      return;
    }
    now_ = events_.next();
    events_.Take()();
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
    const int64_t booked_bytes = oracle_.InFlightBytes() + oracle_.AllHeaderBytes();
    if (booked_bytes > buffer_bytes_ || oracle_.AnyStalled()) overbooked_ = true;
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

  void Follow(const Action& action) {
    switch (action.kind) {
      case Action::Kind::kSend:
        return StartCall(action.tag, action.bytes);
      case Action::Kind::kGrant:
        return TakeGrant(action.tag, action.bytes);
      case Action::Kind::kAbort: {
        const ScheduleOracle::Call& call = oracle_.call(action.tag);
        answers_.at(action.tag).uncharged_headers = call.headers == 0;
        return Later(nanoseconds(Between(0, 100'000)), [this, tag = action.tag] { Abort(tag); });
      }
      case Action::Kind::kStall:
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
      call.parked = Chance(10);
      if (call.parked) Later(RandomTime(10), [this, tag = call.tag] { Unpark(tag); });
      AddAnswer(call.response_bytes, 1);
    }
    const TimePoint deadline = Chance(30) ? TimePoint::max() : now_ + nanoseconds(1) + RandomTime(60);
    BlockId block = 0;
    std::vector<CallId> ids;
    Do(
        [&](TimePoint now, std::vector<Action>& actions) {
          const int64_t room = options_.queue_limit - schedule_.State().waiting_calls;
          const absl::StatusOr<BlockId> id = schedule_.Submit(now, calls, deadline, actions, &ids);
          if (id.ok() != (static_cast<int64_t>(calls.size()) <= room)) oracle_.Fail("the queue limit is not kept");
          if (!id.ok()) answers_.resize(answers_.size() - calls.size());
          block = id.value_or(0);
          return id.ok();
        },
        [&] { oracle_.Submitted(block, calls, ids, deadline, false); });
  }

  void SubmitAhead() {
    const CallRequest call{.response_bytes = Between(0, 6000), .tag = answers_.size()};
    AddAnswer(call.response_bytes, 3);
    answers_.back().ahead = true;
    answers_.back().messages = 0;
    BlockId block = 0;
    CallId call_id;
    Tell(
        [&](TimePoint now, std::vector<Action>& actions) {
          block = schedule_.SubmitAhead(now, call, TimePoint::max(), actions, &call_id).value_or(0);
        },
        [&] { oracle_.Submitted(block, {call}, {call_id}, TimePoint::max(), true); });
  }

  // What a client expects is right, or it is not.
  void AddAnswer(int64_t expected_bytes, int attempts) {
    Answer answer{.payload_bytes = expected_bytes, .attempts = attempts};
    if (Chance(30) && attempts < 3) {
      answer.payload_bytes = Between(0, Chance(10) ? 2 * buffer_bytes_ : buffer_bytes_ / 4);
      answer.messages = static_cast<int>(Chance(30) ? Between(1, 3) : 0);
    }
    answer.missing_bytes = answer.payload_bytes;
    answers_.push_back(answer);
  }

  void CancelSome() {
    if (oracle_.blocks().empty()) return;
    const auto block = std::next(oracle_.blocks().begin(), Between(0, std::ssize(oracle_.blocks()) - 1));
    const BlockId id = block->first;
    Tell([&](TimePoint now, std::vector<Action>& actions) { schedule_.Cancel(now, id, actions); },
         [&] { oracle_.Cancelled(id); });
  }

  void CancelOne() {
    if (oracle_.next_tag() == 0) return;
    const uint64_t tag = Between(0, static_cast<int64_t>(oracle_.next_tag()) - 1);
    const CallId id = oracle_.call(tag).id;
    Tell([&](TimePoint now, std::vector<Action>& actions) { schedule_.CancelCall(now, id, actions); },
         [&] { oracle_.CallCancelled(tag); });
  }

  void ChangeBudget() {
    const int64_t bytes = Between(1, buffer_bytes_);
    Do([&](TimePoint now, std::vector<Action>& actions) { return schedule_.SetBudget(now, bytes, actions).ok(); },
       [&] { oracle_.BudgetSet(bytes); });
  }

  void ParkOne() {
    if (oracle_.next_tag() == 0) return;
    const uint64_t tag = Between(0, static_cast<int64_t>(oracle_.next_tag()) - 1);
    const CallId id = oracle_.call(tag).id;
    Tell([&](TimePoint now, std::vector<Action>& actions) { schedule_.Park(now, id, actions); },
         [&] { oracle_.Parked(tag); });
    Later(RandomTime(10), [this, tag] { Unpark(tag); });
  }

  void Unpark(uint64_t tag) {
    if (tag >= oracle_.next_tag()) return;  // its block was refused
    const CallId id = oracle_.call(tag).id;
    Tell([&](TimePoint now, std::vector<Action>& actions) { schedule_.Unpark(now, id, actions); },
         [&] { oracle_.Unparked(tag); });
  }

  // The request is out: the answer reaches the port after the round trip and the worker's time, as far as it is
  // granted; or the call fails, or hangs, or was not sent at all.
  void StartCall(uint64_t tag, int64_t bytes) {
    Answer& answer = answers_.at(tag);
    answer.out = true;
    answer.granted_bytes = bytes;
    answer.came_with_request = bytes > 0;
    const int send = ++answer.sends;
    if (Chance(5)) return Later(nanoseconds(Between(0, 50'000)), [this, tag] { Unsend(tag); });
    if (Chance(8)) Later(RandomTime(20), [this, tag] { Abort(tag); });
    if (Chance(3)) return Hang(tag);
    Later(Rtt() + RandomTime(Chance(20) ? 20 : 1), [this, tag, send] { BecomeReady(tag, send); });
  }

  void TakeGrant(uint64_t tag, int64_t bytes) {
    Answer& answer = answers_.at(tag);
    answer.granted_bytes += bytes;
    answer.in_parts = answer.in_parts || answer.came_with_request || bytes < answer.payload_bytes;
    if (Chance(4)) return Hang(tag);
    Later(Rtt(), [this, tag, send = answer.sends] { SendData(tag, send); });
  }

  void Hang(uint64_t tag) {
    answers_.at(tag).lost = true;
    Later(RandomTime(100), [this, tag] { Abort(tag); });
  }

  void Unsend(uint64_t tag) {
    Answer& answer = answers_.at(tag);
    if (answer.ended || oracle_.call(tag).aborted) return;
    answer.out = false;
    ++answer.sends;
    const CallId id = oracle_.call(tag).id;
    Tell([&](TimePoint now, std::vector<Action>& actions) { schedule_.OnUnsent(now, id, actions); },
         [&] { oracle_.Unsent(tag); });
    answers_.at(tag).out = oracle_.call(tag).aborted;  // only just now, by its deadline: it still has to end
    Later(RandomTime(10), [this, tag] { Unpark(tag); });
  }

  bool IsSilent(uint64_t tag, int send) const {
    const Answer& answer = answers_.at(tag);
    return answer.sends != send || answer.lost || now_ > answer.silent_at;
  }

  // A message is there: its prefix comes, with grants in a packet of headers, and then what is granted of it.
  void BecomeReady(uint64_t tag, int send) {
    if (IsSilent(tag, send)) return;
    Answer& answer = answers_.at(tag);
    nanoseconds comes_after = nanoseconds(0);
    if (options_.discipline == Discipline::kGrants && !answer.ahead && !answer.uncharged_headers) {
      const int64_t bytes = options_.profile.buffer_packets > 0 ? options_.profile.frame_bytes : kHeaderBytes;
      const std::optional<TimePoint> left = port_.Burst(now_, bytes, Slack());
      if (!left.has_value()) return NoRoom([this, tag, send] { BecomeReady(tag, send); });
      comes_after = *left - now_;
    }
    answer.ready = true;
    Later(comes_after, [this, tag, send] { Ready(tag, send); });
    SendData(tag, send);
  }

  void Ready(uint64_t tag, int send) {
    const Answer& answer = answers_.at(tag);
    if (answer.ended || answer.sends != send) return;
    if (!answer.ahead) {
      const int64_t remaining_bytes = answer.missing_bytes;
      const CallId id = oracle_.call(tag).id;
      Tell([&](TimePoint now, std::vector<Action>& actions) { schedule_.OnReady(now, id, remaining_bytes, actions); },
           [&] { oracle_.Readied(tag, remaining_bytes); });
    }
    if (answers_.at(tag).missing_bytes == 0) MessageArrived(tag);
  }

  void SendData(uint64_t tag, int send) {
    Answer& answer = answers_.at(tag);
    const int64_t part = std::min(answer.payload_bytes, answer.granted_bytes);
    if (IsSilent(tag, send) || !answer.ready || part == 0) return;
    const int64_t bytes = oracle_.BufferBytes(part);
    answer.streams = bytes > buffer_bytes_;
    const std::optional<TimePoint> left =
        answer.streams ? port_.Stream(now_, bytes) : port_.Burst(now_, bytes, Slack());
    if (!left.has_value()) return NoRoom([this, tag, send] { SendData(tag, send); });
    if (answer.streams) port_.StopStream(answer.silent_at);
    answer.payload_bytes -= part;
    answer.granted_bytes -= part;
    const nanoseconds comes_after = *left - now_ + nanoseconds(Between(0, 20'000));
    const int64_t first = Between(0, part);
    if (first > 0) Later(comes_after, [this, tag, send, first] { Receive(tag, send, first); });
    if (first < part) Later(comes_after, [this, tag, send, part, first] { Receive(tag, send, part - first); });
  }

  void Receive(uint64_t tag, int send, int64_t bytes) {
    if (answers_.at(tag).ended || answers_.at(tag).sends != send) return;
    const CallId id = oracle_.call(tag).id;
    Tell([&](TimePoint now, std::vector<Action>& actions) { schedule_.OnReceived(now, id, bytes, actions); },
         [&] { oracle_.Received(tag, bytes); });
    Answer& answer = answers_.at(tag);
    answer.missing_bytes -= bytes;
    if (answer.missing_bytes == 0) MessageArrived(tag);
  }

  void MessageArrived(uint64_t tag) {
    Answer& answer = answers_.at(tag);
    if (answer.ended || answer.lost || !answer.ready) return;
    if (answer.messages == 0) return Finish(tag, CallEnd::kArrived);
    --answer.messages;
    answer.in_parts = true;
    answer.ready = false;
    answer.payload_bytes = answer.missing_bytes = Between(0, buffer_bytes_ / Pick({1, 10}));
    Later(Rtt() + RandomTime(3), [this, tag, send = answer.sends] { BecomeReady(tag, send); });
  }

  // What is charged is what is outstanding of a call; where that was granted in several parts, each of them may end in
  // a packet that is not full.
  int64_t Slack() const {
    int64_t calls = 0;
    for (const Answer& answer : answers_) calls += answer.out && answer.in_parts ? 1 : 0;
    return 2 * calls * options_.profile.frame_bytes;
  }

  // Of a schedule only unscheduled may overflow the port, and others after something did not fit the buffer by itself:
  // an answer larger than the buffer, the headers of silent workers, or bytes that had stalled.
  void NoRoom(std::function<void()> again) {
    const bool may = options_.discipline == Discipline::kUnscheduled || overbooked_;
    if (!may) return oracle_.Fail("the port overflowed");
    Later(std::max(port_.free_at() - now_, nanoseconds(0)) + nanoseconds(1), std::move(again));
  }

  // The call fails on this side. Its worker hears of it half a round trip later, and nothing of it reaches the port
  // after a whole one.
  void Abort(uint64_t tag) {
    Answer& answer = answers_.at(tag);
    if (answer.ended || !answer.out) return;
    answer.silent_at = now_ - kOvertaken + Rtt();
    if (answer.streams) port_.StopStream(answer.silent_at);
    MaybeRetry(tag);
    Finish(tag, CallEnd::kAborted);
  }

  void MaybeRetry(uint64_t tag) {
    const ScheduleOracle::Call call = oracle_.call(tag);
    const ScheduleOracle::Block& block = oracle_.blocks().at(call.block);
    if (answers_.at(tag).attempts >= 3 || Chance(30)) return;
    const CallRequest retry{.response_bytes = Between(0, buffer_bytes_), .tag = answers_.size()};
    AddAnswer(retry.response_bytes, answers_.at(tag).attempts + 1);
    CallId id;
    Do(
        [&](TimePoint now, std::vector<Action>& actions) {
          const bool over = block.cancelled || block.deadline <= std::max(now, oracle_.now());
          const absl::StatusOr<CallId> added_id = schedule_.Add(now, call.block, retry, actions);
          const bool added = added_id.ok();
          id = added_id.value_or(CallId());
          if (added == over) oracle_.Fail("a retry was added to a block that is over, or refused by one that is not");
          if (!added) answers_.pop_back();
          return added;
        },
        [&] { oracle_.Added(call.block, id, retry); });
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

  void Later(nanoseconds delay, std::function<void()> run) { events_.At(now_ + delay, std::move(run)); }

  int64_t Between(int64_t low, int64_t high) { return draws_.Between(low, high); }
  bool Chance(int64_t percent) { return draws_.Chance(percent); }
  int64_t Pick(std::initializer_list<int64_t> values) { return draws_.Pick(values); }
  nanoseconds Rtt() const { return absl::ToChronoNanoseconds(options_.profile.propagation_rtt); }
  // Up to so many times what a full buffer takes to drain.
  nanoseconds RandomTime(int64_t buffers) {
    return nanoseconds(Between(0, buffers * buffer_bytes_ * byte_time_.count()));
  }

  RandomDraws draws_;
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
  EventQueue events_;
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
