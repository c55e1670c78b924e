#include "tests/unit/scheduling/random_life.h"

namespace sluice::testing {

void RandomLife::Step() {
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

void RandomLife::Follow(const Action& action) {
  switch (action.kind) {
    case Action::Kind::kSend:
      return StartCall(action.tag, action.bytes);
    case Action::Kind::kGrant:
      return TakeGrant(action.tag, action.bytes);
    case Action::Kind::kAbort: {
      const ScheduleOracle::Call& call = oracle_.call(action.tag);
      answers_.at(action.tag).headers_charged_until = call.straggles ? now_ : now_ + Rtt() + buffer_bytes_ * byte_time_;
      return Later(nanoseconds(Between(0, 100'000)), [this, tag = action.tag] { Abort(tag); });
    }
    case Action::Kind::kStall:
    case Action::Kind::kExpire:
    case Action::Kind::kDrop:
      return;
  }
}

nanoseconds RandomLife::Lateness() {
  if (Chance(30)) return nanoseconds(0);
  if (Chance(5)) return RandomTime(4);  // the host pauses
  return nanoseconds(Between(0, absl::ToInt64Nanoseconds(options_.profile.timer_jitter)));
}

void RandomLife::Submit() {
  std::vector<CallRequest> calls(Between(1, Chance(10) ? 60 : 12));
  const int64_t size = Between(0, buffer_bytes_ / Pick({1, 2, 8}));
  for (CallRequest& call : calls) {
    call.response_bytes = Chance(30) ? Between(0, Chance(10) ? 2 * buffer_bytes_ : size) : size;
    call.tag = answers_.size();
    call.worker = static_cast<uint32_t>(Between(0, workers_));
    call.may_idle = has_headers_ && header_draws_.Chance(20);
    call.parked = Chance(10);
    if (call.parked) Later(RandomTime(10), [this, tag = call.tag] { Unpark(tag); });
    AddAnswer(call.response_bytes, 1);
  }
  const TimePoint deadline = Chance(30) ? TimePoint::max() : now_ + nanoseconds(1) + RandomTime(60);
  const auto traffic_class =
      static_cast<size_t>(class_draws_.Between(0, static_cast<int64_t>(options_.class_count()) - 1));
  BlockId block = 0;
  std::vector<CallId> ids;
  Do(
      [&](TimePoint now, std::vector<Action>& actions) {
        const int64_t room = options_.queue_limit - schedule_.State().waiting_calls;
        const absl::StatusOr<BlockId> id = schedule_.Submit(now, calls, deadline, actions, &ids, traffic_class);
        if (id.ok() != (static_cast<int64_t>(calls.size()) <= room)) oracle_.Fail("the queue limit is not kept");
        if (!id.ok()) answers_.resize(answers_.size() - calls.size());
        block = id.value_or(0);
        return id.ok();
      },
      [&] { oracle_.Submitted(block, calls, ids, deadline, false, traffic_class); });
}

void RandomLife::SubmitAhead() {
  const CallRequest call{.response_bytes = Between(0, 6000), .tag = answers_.size(), .retry = Chance(30)};
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

void RandomLife::AddAnswer(int64_t expected_bytes, int attempts) {
  Answer answer{.payload_bytes = expected_bytes, .attempts = attempts};
  if (Chance(30) && attempts < 3) {
    answer.payload_bytes = Between(0, Chance(10) ? 2 * buffer_bytes_ : buffer_bytes_ / 4);
    answer.messages = static_cast<int>(Chance(30) ? Between(1, 3) : 0);
  }
  answer.missing_bytes = answer.payload_bytes;
  answers_.push_back(answer);
}

void RandomLife::CancelSome() {
  if (oracle_.blocks().empty()) return;
  const auto block = std::next(oracle_.blocks().begin(), Between(0, std::ssize(oracle_.blocks()) - 1));
  const BlockId id = block->first;
  Tell([&](TimePoint now, std::vector<Action>& actions) { schedule_.Cancel(now, id, actions); },
       [&] { oracle_.Cancelled(id); });
}

void RandomLife::CancelOne() {
  if (oracle_.next_tag() == 0) return;
  const uint64_t tag = Between(0, static_cast<int64_t>(oracle_.next_tag()) - 1);
  const CallId id = oracle_.call(tag).id;
  Tell([&](TimePoint now, std::vector<Action>& actions) { schedule_.CancelCall(now, id, actions); },
       [&] { oracle_.CallCancelled(tag); });
}

void RandomLife::GiveUpOne() {
  if (oracle_.next_tag() == 0) return;
  const uint64_t tag = Between(0, static_cast<int64_t>(oracle_.next_tag()) - 1);
  const CallId id = oracle_.call(tag).id;
  Tell([&](TimePoint now, std::vector<Action>& actions) { schedule_.OnUnwanted(now, id, actions); },
       [&] { oracle_.Unwanted(tag); });
}

void RandomLife::ChangeBudget() {
  const int64_t bytes = Between(1, buffer_bytes_);
  Do([&](TimePoint now, std::vector<Action>& actions) { return schedule_.SetBudget(now, bytes, actions).ok(); },
     [&] { oracle_.BudgetSet(bytes); });
}

void RandomLife::ChangePolicy() {
  constexpr SchedulePolicy kPolicies[] = {SchedulePolicy::kUnscheduled, SchedulePolicy::kRolling,
                                          SchedulePolicy::kGrants, SchedulePolicy::kBatches};
  if (options_.policy == SchedulePolicy::kUnscheduled) {
    switched_on_until_ = now_ + 2 * Rtt() + 2 * buffer_bytes_ * byte_time_ + kOvertaken;
  }
  options_.policy = kPolicies[policy_draws_.Between(0, MayBatch() ? 3 : 2)];
  Do([&](TimePoint now, std::vector<Action>& actions) { return schedule_.Reconfigure(now, options_, actions).ok(); },
     [&] { oracle_.PolicySet(options_.policy); });
}

void RandomLife::Unpark(uint64_t tag) {
  if (tag >= oracle_.next_tag()) return;  // its block was refused
  const CallId id = oracle_.call(tag).id;
  Tell([&](TimePoint now, std::vector<Action>& actions) { schedule_.Unpark(now, id, actions); },
       [&] { oracle_.Unparked(tag); });
}

void RandomLife::StartCall(uint64_t tag, int64_t bytes) {
  Answer& answer = answers_.at(tag);
  answer.out = true;
  answer.header_cost = oracle_.call(tag).header_room + oracle_.call(tag).large_room;
  answer.lost = false;
  answer.granted_bytes = bytes;
  answer.came_with_request = bytes > 0;
  answer.sends_headers = options_.policy == SchedulePolicy::kGrants;
  const int send = ++answer.sends;
  if (Chance(5)) return Later(nanoseconds(Between(0, 50'000)), [this, tag] { Unsend(tag); });
  if (Chance(8)) Later(RandomTime(20), [this, tag] { Abort(tag); });
  if (Chance(3)) return Hang(tag);
  Later(Rtt() + RandomTime(Chance(20) ? 20 : 1), [this, tag, send] { BecomeReady(tag, send); });
}

void RandomLife::TakeGrant(uint64_t tag, int64_t bytes) {
  Answer& answer = answers_.at(tag);
  answer.granted_bytes += bytes;
  answer.in_parts = answer.in_parts || answer.came_with_request || bytes < answer.payload_bytes;
  if (Chance(4)) return Hang(tag);
  Later(Rtt(), [this, tag, send = answer.sends] { SendData(tag, send); });
}

void RandomLife::Hang(uint64_t tag) {
  answers_.at(tag).lost = true;
  Later(RandomTime(100), [this, tag] { Abort(tag); });
}

void RandomLife::Unsend(uint64_t tag) {
  Answer& answer = answers_.at(tag);
  if (answer.ended || oracle_.call(tag).aborted) return;
  answer.out = false;
  ++answer.sends;
  const CallId id = oracle_.call(tag).id;
  Tell([&](TimePoint now, std::vector<Action>& actions) { schedule_.OnUnsent(now, id, actions); },
       [&] { oracle_.Unsent(tag); });
  answers_.at(tag).out = oracle_.call(tag).aborted;  // a call that its deadline has just aborted must still end
  Later(RandomTime(10), [this, tag] { Unpark(tag); });
}

bool RandomLife::IsSilent(uint64_t tag, int send) const {
  const Answer& answer = answers_.at(tag);
  return answer.sends != send || answer.lost || now_ > answer.silent_at;
}

void RandomLife::BecomeReady(uint64_t tag, int send) {
  if (IsSilent(tag, send)) return;
  Answer& answer = answers_.at(tag);
  nanoseconds comes_after = nanoseconds(0);
  if (options_.policy == SchedulePolicy::kGrants && answer.sends_headers && !answer.ahead &&
      now_ < answer.headers_charged_until) {
    int64_t bytes = options_.profile.buffer_packets > 0 ? options_.profile.frame_bytes : kHeaderBytes;
    if (has_headers_ && !headers_vary_)
      bytes = std::clamp(oracle_.BufferBytes(header_bytes_), bytes, std::max(bytes, buffer_bytes_));
    overbooked_ = overbooked_ || bytes > answer.header_cost;
    const std::optional<TimePoint> left = port_.Burst(now_, bytes, Slack());
    if (!left.has_value()) return NoRoom([this, tag, send] { BecomeReady(tag, send); });
    comes_after = *left - now_;
  }
  answer.ready = true;
  Later(comes_after, [this, tag, send] { Ready(tag, send); });
  SendData(tag, send);
}

void RandomLife::TellHeaders(uint64_t tag) {
  if (!has_headers_) return;
  const int64_t bytes = headers_vary_ ? header_draws_.Between(1, 6000) : header_bytes_;
  schedule_.OnHeaders(oracle_.call(tag).id, bytes);
  oracle_.HeadersCame(tag, bytes);
}

void RandomLife::Ready(uint64_t tag, int send) {
  const Answer& answer = answers_.at(tag);
  if (answer.ended || answer.sends != send) return;
  if (!answer.ahead) {
    TellHeaders(tag);
    const bool withholds = room_draws_.Chance(withholds_percent_);
    TellReady(tag, withholds ? room_draws_.Between(0, answer.missing_bytes) : answer.missing_bytes);
    if (withholds) MakeRoomLater(tag, send);
  }
  if (answers_.at(tag).missing_bytes == 0) MessageArrived(tag);
}

void RandomLife::TellReady(uint64_t tag, int64_t remaining_bytes) {
  const int64_t withheld_bytes = answers_.at(tag).missing_bytes - remaining_bytes;
  const CallId id = oracle_.call(tag).id;
  Tell([&](TimePoint now,
           std::vector<Action>& actions) { schedule_.OnReady(now, id, remaining_bytes, actions, withheld_bytes); },
       [&] { oracle_.Readied(tag, remaining_bytes, withheld_bytes); });
}

void RandomLife::MakeRoomLater(uint64_t tag, int send) {
  const nanoseconds after(room_draws_.Between(0, 50 * buffer_bytes_ * byte_time_.count()));
  Later(after, [this, tag, send, messages = answers_.at(tag).messages] {
    const Answer& answer = answers_.at(tag);
    const bool over = answer.ended || answer.sends != send || answer.messages != messages || !answer.ready;
    if (!over) TellReady(tag, answer.missing_bytes);
  });
}

void RandomLife::SendData(uint64_t tag, int send) {
  Answer& answer = answers_.at(tag);
  const int64_t granted = std::min(answer.payload_bytes, answer.granted_bytes);
  if (IsSilent(tag, send) || !answer.ready || granted == 0) return;
  const bool slow = SlowTime(tag, 1).count() > 0;
  const int64_t part = slow ? std::min(granted, options_.profile.packet_payload_bytes) : granted;
  const int64_t bytes = oracle_.BufferBytes(part);
  answer.streams = bytes > buffer_bytes_;
  const std::optional<TimePoint> left = answer.streams ? port_.Stream(now_, bytes) : port_.Burst(now_, bytes, Slack());
  if (!left.has_value()) return NoRoom([this, tag, send] { SendData(tag, send); });
  if (answer.streams) port_.StopStream(answer.silent_at);
  answer.payload_bytes -= part;
  answer.granted_bytes -= part;
  const nanoseconds comes_after = *left - now_ + nanoseconds(Between(0, 20'000));
  const int64_t first = Between(0, part);
  if (first > 0) Later(comes_after, [this, tag, send, first] { Receive(tag, send, first); });
  if (first < part) Later(comes_after, [this, tag, send, part, first] { Receive(tag, send, part - first); });
  if (part < granted) Later(SlowTime(tag, part), [this, tag, send] { SendData(tag, send); });
}

void RandomLife::Receive(uint64_t tag, int send, int64_t bytes) {
  if (answers_.at(tag).ended || answers_.at(tag).sends != send) return;
  const CallId id = oracle_.call(tag).id;
  Tell([&](TimePoint now, std::vector<Action>& actions) { schedule_.OnReceived(now, id, bytes, actions); },
       [&] { oracle_.Received(tag, bytes); });
  Answer& answer = answers_.at(tag);
  answer.missing_bytes -= bytes;
  if (answer.missing_bytes == 0) MessageArrived(tag);
}

void RandomLife::MessageArrived(uint64_t tag) {
  Answer& answer = answers_.at(tag);
  if (answer.ended || answer.lost || !answer.ready) return;
  if (answer.messages == 0) return Finish(tag, CallEnd::kArrived);
  --answer.messages;
  answer.in_parts = true;
  answer.ready = false;
  answer.payload_bytes = answer.missing_bytes = Between(0, buffer_bytes_ / Pick({1, 10}));
  Later(Rtt() + RandomTime(3), [this, tag, send = answer.sends] { BecomeReady(tag, send); });
}

int64_t RandomLife::Slack() const {
  int64_t calls = 0;
  for (const Answer& answer : answers_) calls += answer.out && answer.in_parts ? 1 : 0;
  return 2 * calls * options_.profile.frame_bytes;
}

void RandomLife::NoRoom(std::function<void()> again) {
  // Workers of a paced link must be equally far, and these respond at any time.
  const bool may = options_.policy == SchedulePolicy::kUnscheduled || overbooked_ || options_.paced;
  if (!may) return oracle_.Fail("the port overflowed");
  Later(std::max(port_.free_at() - now_, nanoseconds(0)) + nanoseconds(1), std::move(again));
}

void RandomLife::Abort(uint64_t tag) {
  Answer& answer = answers_.at(tag);
  if (answer.ended || !answer.out) return;
  answer.silent_at = now_ - kOvertaken + Rtt();
  if (answer.streams) port_.StopStream(answer.silent_at);
  if (header_draws_.Chance(20)) TellHeaders(tag);  // headers of an error
  MaybeRetry(tag);
  Finish(tag, CallEnd::kAborted);
}

void RandomLife::MaybeRetry(uint64_t tag) {
  const ScheduleOracle::Call call = oracle_.call(tag);
  const ScheduleOracle::Block& block = oracle_.blocks().at(call.block);
  if (answers_.at(tag).attempts >= 3 || Chance(30)) return;
  const CallRequest retry{.response_bytes = Between(0, buffer_bytes_),
                          .tag = answers_.size(),
                          .worker = static_cast<uint32_t>(Between(0, workers_))};
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

void RandomLife::Finish(uint64_t tag, CallEnd end) {
  if (std::exchange(answers_.at(tag).ended, true)) return;
  const CallId id = oracle_.call(tag).id;
  const auto finish = [this, id, end](TimePoint now, std::vector<Action>& actions) {
    schedule_.OnFinished(now, id, end, actions);
    return true;
  };
  Do(finish, [&] { oracle_.Finished(tag, end); });
  if (Chance(5)) Do(finish);  // a second OnFinished changes nothing, now or later
  if (Chance(5)) Later(RandomTime(10), [this, finish] { Do(finish); });
}

ScheduleOptions RandomLife::Paced(ScheduleOptions options) {
  options.paced = options.policy != SchedulePolicy::kBatches && pace_draws_.Chance(30);
  if (options.paced) options.profile.propagation_rtt *= pace_draws_.Pick({1, 5, 50});
  return options;
}

ScheduleOptions RandomLife::WithClasses(ScheduleOptions options) {
  const bool shares = options.policy == SchedulePolicy::kGrants || options.policy == SchedulePolicy::kRolling;
  if (!shares || class_draws_.Chance(30)) return options;
  for (int64_t i = class_draws_.Between(1, 4); i > 0; --i) {
    const auto tenths = static_cast<double>(class_draws_.Pick({1, 10, 10, 30, 90, 1000}));
    options.classes.push_back({.name = absl::StrCat("class-", i), .weight = tenths / 10});
  }
  return options;
}

nanoseconds RandomLife::RandomTime(int64_t buffers) {
  return nanoseconds(Between(0, buffers * buffer_bytes_ * byte_time_.count()));
}

}  // namespace sluice::testing
