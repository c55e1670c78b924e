#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/grpc_wire/request.h"
#include "lib/link/link_loop.h"
#include "lib/link/link_metrics.h"
#include "lib/link/wire_call.h"
#include "prometheus/registry.h"
#include "tests/has_code.h"
#include "tests/unit/link/virtual_executor.h"
#include "tests/unit/link/virtual_worker.h"

namespace sluice::testing {

// A LinkLoop in virtual time. The test owns its workers and all calls.
class VirtualLinkTest : public ::testing::Test, protected CallOwner {
 protected:
  struct CallRecord {
    int sent = 0;
    std::vector<std::string> messages;
    int ended = 0;
    absl::Status status;
    ScheduledStream* call = nullptr;  // until it has ended
  };
  struct CallOptions {
    int64_t response_bytes = 1000;
    std::string path = "/test.Answers/Get";
    bool server_streaming = false;
    TimePoint::duration timeout = std::chrono::minutes(5);
    std::shared_ptr<CallbackMemory::Account> memory;  // may be null
  };

  static constexpr int64_t kAmpleBytes = 4 << 20;
  // Room for thousands of calls.
  static ScheduleOptions Ample() {
    ScheduleOptions options;
    options.profile.buffer_bytes = kAmpleBytes;
    return options;
  }
  void StartLink(const ScheduleOptions& options = Ample()) {
    loop_ = std::make_unique<LinkLoop>(executor_, options, metrics_);
  }
  void TearDown() override {
    workers_.clear();
    loop_.reset();
  }

  // Creates a worker that lives as long as the link.
  VirtualWorker& Serve(const std::string& address, VirtualWorker::Handler handler,
                       VirtualWorker::Options options = VirtualWorker::Options()) {
    return *servers_.emplace_back(
        std::make_unique<VirtualWorker>(executor_, address, std::move(handler), std::move(options)));
  }

  // Submits a block of calls to the worker within this turn. Returns the tag of the first.
  size_t AskHere(const std::string& target, size_t calls, const CallOptions& options) {
    const size_t first = calls_.size();
    std::vector<ScheduledStream*> streams;
    for (size_t i = 0; i < calls; ++i) {
      CallRecord& record = calls_.emplace_back();
      record.call = &WireCall::Make(*loop_,
                                    {.worker = WorkerOf(target),
                                     .path = options.path,
                                     .server_streaming = options.server_streaming,
                                     .request = std::make_shared<const std::string>(FrameMessage("?")),
                                     .response_bytes = options.response_bytes,
                                     .deadline = loop_->now() + options.timeout,
                                     .tag = first + i,
                                     .memory = options.memory},
                                    *this);
      streams.push_back(record.call);
    }
    BlockId block = 0;
    const absl::Status submitted = loop_->Submit(streams, loop_->now() + options.timeout, block);
    EXPECT_TRUE(submitted.ok()) << submitted;
    return first;
  }
  size_t AskHere(const std::string& target, size_t calls = 1) { return AskHere(target, calls, CallOptions()); }
  size_t Ask(const std::string& target, size_t calls, const CallOptions& options) {
    size_t first = 0;
    executor_.Turn([&] { first = AskHere(target, calls, options); });
    return first;
  }
  size_t Ask(const std::string& target, size_t calls = 1) { return Ask(target, calls, CallOptions()); }
  // Sets how many bytes of all calls may be in flight; at 0 nothing leaves.
  void SetLease(int64_t bytes) {
    executor_.Turn([&] {
      EXPECT_TRUE(loop_->SetLease({.bytes = bytes, .link_bytes = kAmpleBytes, .plan_bytes = kAmpleBytes}).ok());
    });
  }
  void Cancel(size_t tag, const absl::Status& why = absl::CancelledError("not needed")) {
    executor_.Turn([&] { CancelHere(tag, why); });
  }
  void CancelHere(size_t tag, const absl::Status& why = absl::CancelledError("not needed")) {
    if (calls_[tag].ended == 0) loop_->CancelCall(*calls_[tag].call, why);
  }
  const CallRecord& AwaitEnd(size_t tag) {
    EXPECT_TRUE(executor_.RunUntil([&] { return calls_[tag].ended > 0; })) << "call " << tag;
    return calls_[tag];
  }
  bool AwaitCalls(const VirtualWorker& worker, size_t calls) {
    return executor_.RunUntil([&] { return worker.calls().size() >= calls && worker.calls().back()->whole(); });
  }

  std::shared_ptr<Worker> WorkerOf(const std::string& target) {
    std::shared_ptr<Worker>& worker = workers_[target];
    if (worker == nullptr) worker = loop_->workers().Find(target, nullptr);
    return worker;
  }
  void Connect(const std::string& target) {
    executor_.Turn([&] { WorkerOf(target)->Connect(); });
    EXPECT_TRUE(executor_.RunUntil([&] { return WorkerOf(target)->connected(); }));
  }
  // Waits until no call waits, and nothing is in flight, now or soon.
  bool AwaitIdle() {
    return executor_.RunUntil([&] {
      const ScheduleState state = loop_->schedule().State();
      return state.submitted_calls == state.ended_calls && state.in_flight_bytes == 0 && state.blocks == 0;
    });
  }

  // CallOwner.
  void OnSent(size_t tag) override { ++calls_[tag].sent; }
  void OnReady(size_t, std::chrono::nanoseconds) override {}
  void OnMessage(size_t tag, WireMessage message) override { calls_[tag].messages.push_back(std::move(message.bytes)); }
  void OnEnded(size_t tag, RpcEnd end) override {
    CallRecord& record = calls_[tag];
    EXPECT_EQ(record.ended, 0) << "nothing follows the end of call " << tag;
    ++record.ended;
    record.status = std::move(end.status);
    record.call = nullptr;
    if (on_ended_) on_ended_(tag);
  }

  prometheus::Registry registry_;
  LinkMetrics metrics_{registry_};
  VirtualExecutor executor_;
  std::vector<std::unique_ptr<VirtualWorker>> servers_;
  std::unique_ptr<LinkLoop> loop_;
  std::map<std::string, std::shared_ptr<Worker>> workers_;
  std::vector<CallRecord> calls_;             // by tag
  std::function<void(size_t tag)> on_ended_;  // may be null
};

}  // namespace sluice::testing
