#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sluice/plan.h"

#include "gtest/gtest.h"
#include "lib/scheduling/link_schedule.h"

namespace sluice {

inline TimePoint At(std::chrono::nanoseconds since_start) {
  return TimePoint(since_start);
}

// A schedule whose calls have the tags 0, 1, 2 … in the order of their submission. Its events return their actions in
// words: "send 0", "grant 1 500" with the granted bytes, "expire 2". The words of a request leave out the usual bytes:
// none with grants, otherwise the whole expected response. Not thread-safe.
class ScheduleDriver {
 public:
  using Words = std::vector<std::string>;

  explicit ScheduleDriver(const ScheduleOptions& options) : schedule_(options) {}

  Words Submit(TimePoint now, const std::vector<int64_t>& sizes, TimePoint deadline = TimePoint::max()) {
    std::vector<CallRequest> calls;
    for (const int64_t size : sizes) calls.push_back(Request(size));
    std::vector<Action> actions;
    const absl::StatusOr<BlockId> block = schedule_.Submit(now, calls, deadline, actions, nullptr, traffic_class_);
    EXPECT_TRUE(block.ok()) << block.status();
    last_block_ = block.value_or(0);
    return InWords(actions);
  }

  Words Add(TimePoint now, BlockId block, int64_t size) {
    std::vector<Action> actions;
    const CallRequest request = Request(size);
    const absl::StatusOr<CallId> call = schedule_.Add(now, block, request, actions);
    EXPECT_TRUE(call.ok()) << call.status();
    calls_[request.tag] = call.value_or(CallId());
    return InWords(actions);
  }

  Words SubmitAhead(TimePoint now, int64_t size, TimePoint deadline = TimePoint::max(), bool retry = false) {
    std::vector<Action> actions;
    CallRequest request = Request(size);
    request.retry = retry;
    const absl::StatusOr<BlockId> block = schedule_.SubmitAhead(now, request, deadline, actions);
    EXPECT_TRUE(block.ok()) << block.status();
    last_block_ = block.value_or(0);
    return InWords(actions);
  }

  // A byte tunnel with this window asks for its turn.
  Words AskForTurn(TimePoint now, int64_t window, int64_t expected = 0) {
    std::vector<Action> actions;
    CallRequest request = Request(std::max(window, expected));
    request.window_bytes = window;
    std::vector<CallId> ids;
    const absl::StatusOr<BlockId> block =
        schedule_.Submit(now, {request}, TimePoint::max(), actions, &ids, traffic_class_);
    EXPECT_TRUE(block.ok()) << block.status();
    if (block.ok()) calls_[request.tag] = ids[0];
    return InWords(actions);
  }

  // Submits one parked call. Its id is correct only while no call of this driver has ended.
  Words SubmitParked(TimePoint now, int64_t size, TimePoint deadline = TimePoint::max()) {
    CallRequest request = Request(size);
    request.parked = true;
    std::vector<Action> actions;
    const absl::StatusOr<BlockId> block = schedule_.Submit(now, {request}, deadline, actions);
    EXPECT_TRUE(block.ok()) << block.status();
    last_block_ = block.value_or(0);
    calls_[request.tag] = {.slot = static_cast<uint32_t>(request.tag), .generation = 0};
    return InWords(actions);
  }

  Words Unpark(TimePoint now, uint64_t tag) {
    std::vector<Action> actions;
    schedule_.Unpark(now, calls_.at(tag), actions);
    return InWords(actions);
  }

  Words Unsent(TimePoint now, uint64_t tag) {
    std::vector<Action> actions;
    schedule_.OnUnsent(now, calls_.at(tag), actions);
    return InWords(actions);
  }

  void Headers(uint64_t tag, int64_t wire_bytes) { schedule_.OnHeaders(calls_.at(tag), wire_bytes); }

  Words Ready(TimePoint now, uint64_t tag, int64_t remaining, int64_t withheld = 0) {
    std::vector<Action> actions;
    schedule_.OnReady(now, calls_.at(tag), remaining, actions, withheld);
    return InWords(actions);
  }

  Words Receive(TimePoint now, uint64_t tag, int64_t bytes) {
    std::vector<Action> actions;
    schedule_.OnReceived(now, calls_.at(tag), bytes, actions);
    return InWords(actions);
  }

  Words GiveUp(TimePoint now, uint64_t tag) {
    std::vector<Action> actions;
    schedule_.OnUnwanted(now, calls_.at(tag), actions);
    return InWords(actions);
  }

  Words Finish(TimePoint now, uint64_t tag, CallEnd end = CallEnd::kArrived) {
    std::vector<Action> actions;
    schedule_.OnFinished(now, calls_.at(tag), end, actions);
    return InWords(actions);
  }

  Words Cancel(TimePoint now, BlockId block) {
    std::vector<Action> actions;
    schedule_.Cancel(now, block, actions);
    return InWords(actions);
  }

  // Cancels a call that was sent or added.
  Words CancelCall(TimePoint now, uint64_t tag) {
    std::vector<Action> actions;
    schedule_.CancelCall(now, calls_.at(tag), actions);
    return InWords(actions);
  }

  Words Timer(TimePoint now) {
    std::vector<Action> actions;
    schedule_.OnTimer(now, actions);
    return InWords(actions);
  }

  Words SetBudget(TimePoint now, int64_t bytes) {
    std::vector<Action> actions;
    const absl::Status status = schedule_.SetBudget(now, bytes, actions);
    EXPECT_TRUE(status.ok()) << status;
    return InWords(actions);
  }

  Words Reconfigure(TimePoint now, const ScheduleOptions& options) {
    std::vector<Action> actions;
    const absl::Status status = schedule_.Reconfigure(now, options, actions);
    EXPECT_TRUE(status.ok()) << status;
    return InWords(actions);
  }

  Words SetLease(TimePoint now, const BudgetLease& lease) {
    std::vector<Action> actions;
    const absl::Status status = schedule_.SetLease(now, lease, actions);
    EXPECT_TRUE(status.ok()) << status;
    return InWords(actions);
  }

  void set_worker(uint32_t worker) { worker_ = worker; }                            // of later calls
  void set_may_idle(bool may_idle) { may_idle_ = may_idle; }                        // likewise
  void set_traffic_class(size_t traffic_class) { traffic_class_ = traffic_class; }  // of later blocks
  WorkerLoad load() const { return schedule_.Load(worker_); }
  BlockId last_block() const { return last_block_; }
  CallId call(uint64_t tag) const { return calls_.at(tag); }
  TimePoint next_timer() const { return schedule_.NextTimer(); }
  ScheduleState state() const { return schedule_.State(); }
  LinkSchedule& schedule() { return schedule_; }

 private:
  CallRequest Request(int64_t size) {
    sizes_.push_back(size);
    return {.response_bytes = size, .tag = next_tag_++, .may_idle = may_idle_, .worker = worker_};
  }

  Words InWords(const std::vector<Action>& actions) {
    Words words;
    for (const Action& action : actions) {
      calls_[action.tag] = action.call;
      words.push_back(Verb(action.kind) + " " + std::to_string(action.tag) + Bytes(action));
    }
    return words;
  }

  std::string Bytes(const Action& action) const {
    const bool grants = schedule_.options().policy == SchedulePolicy::kGrants;
    const bool unscheduled = schedule_.options().policy == SchedulePolicy::kUnscheduled;
    const int64_t usual = unscheduled ? kMaxResponseBytes : std::max<int64_t>(sizes_.at(action.tag), 1);
    if (action.kind != Action::Kind::kSend && action.kind != Action::Kind::kGrant) return "";
    if (action.kind == Action::Kind::kSend && action.bytes == (grants ? 0 : usual)) return "";
    return " " + std::to_string(action.bytes);
  }

  static std::string Verb(Action::Kind kind) {
    switch (kind) {
      case Action::Kind::kSend:
        return "send";
      case Action::Kind::kGrant:
        return "grant";
      case Action::Kind::kStall:
        return "stall";
      case Action::Kind::kExpire:
        return "expire";
      case Action::Kind::kDrop:
        return "drop";
      case Action::Kind::kAbort:
        return "abort";
    }
    return "?";
  }

  LinkSchedule schedule_;
  uint64_t next_tag_ = 0;
  uint32_t worker_ = 0;
  bool may_idle_ = false;
  size_t traffic_class_ = 0;
  std::vector<int64_t> sizes_;  // by tag
  BlockId last_block_ = 0;
  std::unordered_map<uint64_t, CallId> calls_;
};

}  // namespace sluice
