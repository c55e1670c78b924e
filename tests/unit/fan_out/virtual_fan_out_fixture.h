#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/fan_out/fan_out_run.h"
#include "lib/fan_out/fan_out_state.h"
#include "lib/fan_out/merge_sink.h"
#include "lib/grpc_wire/request.h"
#include "lib/link/callback_queue.h"
#include "lib/link/link_loop.h"
#include "lib/net/clock.h"
#include "prometheus/registry.h"
#include "tests/has_code.h"
#include "tests/unit/link/virtual_executor.h"
#include "tests/unit/link/virtual_worker.h"

namespace sluice::testing {

// The callback thread in virtual time: callbacks take the time that they spend, and the test can stop the thread.
class VirtualCallbacks final : public Callbacks {
 public:
  explicit VirtualCallbacks(VirtualExecutor& executor) : executor_(executor) {}

  void Run(Owner owner, std::function<void()> callback, When /*when*/) override {
    queue_.Push({owner, std::move(callback)});
    NextLater({});
  }
  // Called by a running callback: it takes this time.
  void Spend(TimePoint::duration time) { spent_ += time; }
  void Stop() { stopped_ = true; }
  void GoOn() {
    stopped_ = false;
    NextLater({});
  }

 private:
  void NextLater(TimePoint::duration pause) {
    if (!std::exchange(busy_, true)) executor_.After(pause, [this] { Next(); });
  }
  void Next() {
    busy_ = false;
    if (stopped_ || queue_.empty()) return;
    spent_ = {};
    CallbackQueue::Callback callback = queue_.Pop();
    std::exchange(callback.run, nullptr)();
    queue_.Took(callback.owner, spent_);
    NextLater(spent_);
  }

  VirtualExecutor& executor_;
  CallbackQueue queue_;
  bool busy_ = false;
  bool stopped_ = false;
  TimePoint::duration spent_{0};
};

// Fan-outs to the test's workers, in virtual time, with real HTTP/2 bytes.
class VirtualFanOutTest : public ::testing::Test {
 protected:
  using Handler = VirtualWorker::Handler;
  struct AskOptions {
    bool server_streaming = false;
    std::optional<int64_t> response_bytes;
    absl::Duration timeout = absl::Minutes(10);
    absl::Duration attempt_timeout = absl::InfiniteDuration();
    std::optional<absl::Duration> hedge_after;
    size_t replica_distance = 0;  // worker i + replica_distance can answer the request of worker i, too; 0: none can
    size_t fail_limit = 0;
    std::optional<size_t> success_quorum;
    std::function<absl::Status(size_t worker, std::string& message)> merge;  // default: accepts every message
    int64_t max_message_bytes = 64 << 20;
  };
  // One fan-out.
  struct Asked {
    std::map<size_t, std::vector<std::string>> merged;  // by worker
    size_t messages = 0;                                // of all workers
    std::optional<FanOutResult> result;
    std::shared_ptr<FanOutRun> run;
    std::atomic<bool> stop_merging = false;
  };

  static constexpr int64_t kMemory = 100'000;

  // By default no response is granted before it is ready, unless it is small and its size is known.
  static ScheduleOptions Grants() {
    LinkProfile profile;
    profile.capacity_bytes_per_second = 1e12;
    profile.propagation_rtt = absl::Nanoseconds(1);
    return {.profile = profile, .budget_bytes = 32 << 10};
  }
  void Start(size_t workers, const Handler& handler, const ScheduleOptions& options = Grants(),
             int64_t memory_bytes = kMemory) {
    loop_ = std::make_unique<LinkLoop>(executor_, options, metrics_);
    loop_->callback_memory().SetBound(memory_bytes);
    fan_out_ = std::make_unique<FanOutState>(*loop_, callbacks_, nullptr);
    auto addresses = std::make_shared<std::vector<std::string>>();
    for (size_t i = 0; i < workers; ++i) {
      addresses->push_back(absl::StrCat("worker-", i, ":7000"));
      workers_.push_back(
          std::make_unique<VirtualWorker>(executor_, addresses->back(), handler, VirtualWorker::Options()));
    }
    addresses_ = std::move(addresses);
    executor_.Turn([this] { fan_out_->SetWorkers(addresses_); });
  }
  void TearDown() override {
    callbacks_.GoOn();
    bool idle = false;
    executor_.Turn([&] { fan_out_->Close(absl::CancelledError("the test is over"), [&] { idle = true; }); });
    EXPECT_TRUE(executor_.RunUntil([&] { return idle; }));
    EXPECT_EQ(loop_->callback_memory().waiting_bytes(), 0);
    executor_.Turn([this] { fan_out_.reset(); });
    asked_.clear();
    loop_.reset();
  }

  Asked& Ask(const std::vector<size_t>& workers, AskOptions options) {
    Asked& asked = *asked_.emplace_back(std::make_unique<Asked>());
    executor_.Turn([&] {
      FanOutRun::Spec spec{.path = "/test.Answers/Get",
                           .server_streaming = options.server_streaming,
                           .workers = fan_out_->SetOf(addresses_),
                           .max_message_bytes = options.max_message_bytes,
                           .memory = std::make_shared<CallbackMemory::Account>(loop_->callback_memory())};
      for (const size_t worker : workers) {
        std::vector<size_t> replicas;
        if (options.replica_distance > 0) replicas = {(worker + options.replica_distance) % workers_.size()};
        spec.asks.push_back({.request = std::make_shared<const std::string>(FrameMessage(absl::StrCat(worker))),
                             .workers = fan_out_->OrderOf(*spec.workers, worker, replicas),
                             .primary = worker,
                             .response_bytes = options.response_bytes});
      }
      spec.limits.deadline = DeadlineAfter(loop_->now(), options.timeout);
      spec.limits.attempt_timeout = options.attempt_timeout;
      spec.limits.hedge_after = options.hedge_after;
      spec.limits.fail_limit = options.fail_limit;
      spec.limits.success_quorum = options.success_quorum;
      spec.limits.server_streaming = options.server_streaming;
      auto sink = std::make_shared<MergeSink>(
          *fan_out_,
          [&asked, merge = options.merge](size_t worker, std::string& message) {
            const absl::Status verdict = merge ? merge(worker, message) : absl::OkStatus();
            if (verdict.ok()) asked.merged[worker].push_back(message), ++asked.messages;
            return verdict;
          },
          [&asked](FanOutResult result) { asked.result = std::move(result); },
          MergeSink::Options{
              .max_message_bytes = options.max_message_bytes,
              .stop_merging = std::shared_ptr<const std::atomic<bool>>(asked_.back(), &asked.stop_merging)});
      asked.run = FanOutRun::Make(*fan_out_, std::move(spec), sink);
      sink->SetRun(asked.run);
      asked.run->Begin();
    });
    return asked;
  }
  Asked& AskFirst(size_t workers, AskOptions options) {
    std::vector<size_t> all(workers);
    for (size_t i = 0; i < workers; ++i) all[i] = i;
    return Ask(all, std::move(options));
  }
  bool AwaitEnd(const Asked& asked) {
    return executor_.RunUntil([&] { return asked.result.has_value(); });
  }

  int64_t waiting_bytes() const { return loop_->callback_memory().waiting_bytes(); }
  double Holds() {
    for (const prometheus::MetricFamily& family : registry_.Collect()) {
      if (family.name == "sluice_callback_holds_total") return family.metric.at(0).counter.value;
    }
    return -1;
  }

  prometheus::Registry registry_;
  LinkMetrics metrics_{registry_};
  VirtualExecutor executor_;
  VirtualCallbacks callbacks_{executor_};
  std::vector<std::unique_ptr<VirtualWorker>> workers_;
  std::unique_ptr<LinkLoop> loop_;
  std::unique_ptr<FanOutState> fan_out_;
  FanOutState::Addresses addresses_;
  std::vector<std::shared_ptr<Asked>> asked_;
};

}  // namespace sluice::testing
