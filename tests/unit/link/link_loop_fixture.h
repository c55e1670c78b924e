#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/grpc_wire/request.h"
#include "lib/link/link_loop.h"
#include "lib/link/link_metrics.h"
#include "lib/link/wire_call.h"
#include "lib/net/asio_executor.h"
#include "prometheus/registry.h"
#include "tests/has_code.h"
#include "tests/unit/link/test_http2_server.h"
#include "tests/unit/net/link_thread.h"

namespace sluice::testing {

// The events of one call.
struct CallRecord {
  int sent = 0;
  int ready = 0;
  std::vector<std::string> messages;
  int ended = 0;
  absl::Status status;
};

// Records the events of calls, and may react to them. Use it on the link's thread, except the methods that are
// thread-safe.
class RecordingOwner final : public CallOwner {
 public:
  std::function<void(size_t tag)> on_sent;

  void OnSent(size_t tag) override {
    Change(tag, [](CallRecord& call) { ++call.sent; });
    if (on_sent) on_sent(tag);
  }
  void OnReady(size_t tag, std::chrono::nanoseconds) override {
    Change(tag, [](CallRecord& call) { ++call.ready; });
  }
  void OnMessage(size_t tag, WireMessage message) override {
    Change(tag, [&](CallRecord& call) { call.messages.push_back(std::move(message.bytes)); });
  }
  void OnEnded(size_t tag, RpcEnd end) override {
    Change(tag, [&](CallRecord& call) {
      ++call.ended;
      call.status = end.status;
    });
  }

  // Thread-safe.
  CallRecord Get(size_t tag) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = calls_.find(tag);
    return found == calls_.end() ? CallRecord() : found->second;
  }
  // Thread-safe. Returns the record once the condition holds, or after kPatience.
  CallRecord Await(size_t tag, const std::function<bool(const CallRecord&)>& condition) {
    std::unique_lock<std::mutex> lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, absl::ToChronoSeconds(kPatience), [&] { return condition(calls_[tag]); }))
        << "call " << tag;
    return calls_[tag];
  }
  CallRecord AwaitEnd(size_t tag) {
    return Await(tag, [](const CallRecord& call) { return call.ended > 0; });
  }

 private:
  void Change(size_t tag, const std::function<void(CallRecord&)>& change) {
    const std::lock_guard<std::mutex> lock(mutex_);
    EXPECT_EQ(calls_[tag].ended, 0) << "nothing follows the end of call " << tag;
    change(calls_[tag]);
    changed_.notify_all();
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<size_t, CallRecord> calls_;  // guarded by mutex_
};

// A LinkLoop on its real executor. Its workers are servers of the test.
class LinkLoopTest : public ::testing::Test {
 protected:
  struct CallOptions {
    int64_t response_bytes = 1000;
    bool server_streaming = false;
    std::chrono::milliseconds timeout = std::chrono::minutes(5);
    std::optional<std::chrono::milliseconds> told_timeout;  // sent to the worker; default: `timeout`
  };

  void StartLink(ScheduleOptions options = {}) {
    executor_.Await([&] { loop_ = std::make_unique<LinkLoop>(executor_, options, metrics_); });
  }
  void SetMaxConnections(size_t connections) {
    executor_.Await([&] { loop_->workers().set_max_connections(connections); });
  }
  // Every response of unknown size waits for a grant: see FanOutTest::FixedBudget.
  static ScheduleOptions Grants() {
    LinkProfile profile;
    profile.capacity_bytes_per_second = 1e12;
    profile.propagation_rtt = absl::Nanoseconds(1);
    return {.profile = profile, .budget_bytes = kBudget, .stall_timeout = absl::Hours(1)};
  }
  // A window of requests for hundreds of calls. No call is granted before it is ready.
  static ScheduleOptions Ample() {
    ScheduleOptions options = Grants();
    options.profile.buffer_bytes = 4 << 20;
    options.budget_bytes = options.profile.buffer_bytes;
    return options;
  }
  void TearDown() override {
    executor_.Await([&] {
      workers_.clear();
      loop_.reset();
    });
  }

  // Returns the tags of the block, which continue after the previous tags.
  std::vector<size_t> Ask(const std::vector<std::string>& targets, const CallOptions& options) {
    std::vector<size_t> tags;
    executor_.Await([&] { tags = AskHere(targets, options); });
    return tags;
  }
  // Returns why the block is refused.
  absl::Status Refusal(const std::vector<std::string>& targets) {
    absl::Status submitted;
    executor_.Await([&] { AskHere(targets, CallOptions(), &submitted); });
    return submitted;
  }
  std::vector<size_t> AskHere(const std::vector<std::string>& targets, const CallOptions& options,
                              absl::Status* refusal = nullptr) {
    std::vector<size_t> tags;
    std::vector<ScheduledStream*> calls;
    const TimePoint deadline = loop_->now() + options.timeout;
    const TimePoint told_deadline = loop_->now() + options.told_timeout.value_or(options.timeout);
    for (const std::string& target : targets) {
      tags.push_back(next_tag_++);
      ScheduledStream& call = WireCall::Make(*loop_,
                                             {.worker = WorkerOf(target),
                                              .path = "/test.Answers/Get",
                                              .server_streaming = options.server_streaming,
                                              .request = std::make_shared<const std::string>(FrameMessage("?")),
                                              .response_bytes = options.response_bytes,
                                              .deadline = told_deadline,
                                              .tag = tags.back()},
                                             owner_);
      calls_[tags.back()] = &call;
      calls.push_back(&call);
    }
    BlockId block = 0;
    const absl::Status submitted = loop_->Submit(calls, deadline, block);
    if (refusal != nullptr) {
      *refusal = submitted;
    } else {
      EXPECT_TRUE(submitted.ok()) << submitted;
    }
    return tags;
  }
  std::vector<size_t> Ask(const std::vector<std::string>& targets) { return Ask(targets, CallOptions()); }
  size_t AskOne(const std::string& target, const CallOptions& options) { return Ask({target}, options).front(); }
  size_t AskOne(const std::string& target) { return AskOne(target, CallOptions()); }
  void Cancel(size_t tag) {
    executor_.Await([&] { CancelHere(tag); });
  }
  void CancelHere(size_t tag) {
    if (owner_.Get(tag).ended == 0) loop_->CancelCall(*calls_[tag], absl::CancelledError("not needed"));
  }
  CallRecord AwaitEnd(size_t tag) { return owner_.AwaitEnd(tag); }
  CallRecord AwaitReady(size_t tag) {
    return owner_.Await(tag, [](const CallRecord& call) { return call.ready > 0; });
  }

  ScheduleState State() {
    ScheduleState state;
    executor_.Await([&] { state = loop_->schedule().State(); });
    return state;
  }
  bool AwaitState(const std::function<bool(const ScheduleState&)>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoSeconds(kPatience);
    while (!condition(State())) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }
  // Waits until no call waits, and nothing is in flight.
  bool AwaitIdle() {
    return AwaitState([](const ScheduleState& state) {
      return state.blocks == 0 && state.in_flight_bytes == 0 && state.in_flight_calls == 0 &&
             state.ungranted_calls == 0 && state.waiting_calls == 0 && state.submitted_calls == state.ended_calls;
    });
  }
  // Waits until the client lets the server send this many bytes of that response.
  static void AwaitWindow(TestHttp2Server& server, size_t call, int64_t bytes) {
    const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoSeconds(kPatience);
    int64_t window_bytes = 0;
    while (window_bytes < bytes && std::chrono::steady_clock::now() < deadline) {
      server.Run([&] { window_bytes = server.calls()[call]->window_bytes(); });
    }
    EXPECT_GE(window_bytes, bytes);
  }
  void SetLease(int64_t bytes) {
    executor_.Await(
        [&] { EXPECT_TRUE(loop_->SetLease({.bytes = bytes, .link_bytes = kBudget, .plan_bytes = kBudget}).ok()); });
  }

  std::shared_ptr<Worker> WorkerOf(const std::string& target) {
    std::shared_ptr<Worker>& worker = workers_[target];
    if (worker == nullptr) worker = loop_->workers().Find(target, nullptr);
    return worker;
  }
  void Connect(const std::string& target) {
    executor_.Await([&] { WorkerOf(target)->Connect(); });
    const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoSeconds(kPatience);
    bool connected = false;
    while (!connected && std::chrono::steady_clock::now() < deadline) {
      executor_.Await([&] { connected = WorkerOf(target)->connected(); });
    }
    EXPECT_TRUE(connected);
  }

  static constexpr int64_t kBudget = 32 << 10;

  prometheus::Registry registry_;
  LinkMetrics metrics_{registry_};
  AsioExecutor executor_;
  RecordingOwner owner_;
  // Used on the link's thread only.
  std::unique_ptr<LinkLoop> loop_;
  std::map<std::string, std::shared_ptr<Worker>> workers_;
  std::map<size_t, ScheduledStream*> calls_;
  size_t next_tag_ = 0;
};

}  // namespace sluice::testing
