#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"
#include "lib/net/io_thread.h"
#include "lib/sharing/lease_server.h"
#include "prometheus/registry.h"
#include "tests/unit/sharing/sharing_process.h"
#include "tests/unit/telemetry/scrape.h"
#include "tests/wait_until.h"

namespace sluice {

inline constexpr int64_t kBudget = 32'000;
inline constexpr int64_t kLots = 1'000'000;

// A daemon in this process, and its observed events.
class SharingTest : public ::testing::Test {
 protected:
  LeaseServer::Options Options() {
    LeaseServer::Options options{.socket = socket_};
    // Long enough for a machine on which other tests delay threads.
    options.shares = {.budget_bytes = kBudget,
                      .frame_bytes = 1000,
                      .lease_time = std::chrono::milliseconds(1000),
                      .start_grace = std::chrono::milliseconds(0)};
    options.on_event = [this](const SharingEvent& event) {
      absl::MutexLock lock(&mutex_);
      events_.push_back(std::string(SharingEventName(event.kind)) + " " + event.application);
    };
    return options;
  }

  void Serve(LeaseServer::Options options) {
    server_.reset();
    auto server = LeaseServer::Start(io_thread_.context(), std::move(options), registry_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void Serve() { Serve(Options()); }

  // Waits until the first events are these.
  bool AwaitEvents(const std::vector<std::string>& events) {
    absl::MutexLock lock(&mutex_);
    const auto holds = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return events_.size() >= events.size() && std::equal(events.begin(), events.end(), events_.begin());
    };
    return mutex_.AwaitWithTimeout(absl::Condition(&holds), kPatience);
  }

  double Metric(const std::string& name, const std::string& label = "") {
    for (const prometheus::MetricFamily& family : Scrape({&registry_, server_.get()})) {
      if (family.name != name) continue;
      for (const prometheus::ClientMetric& metric : family.metric) {
        if (!metric.label.empty() && metric.label.front().value != label) continue;
        return family.type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value;
      }
    }
    return -1;
  }

  bool AwaitMetric(const std::string& name, const std::string& label, double value) {
    return WaitUntil([&] { return Metric(name, label) == value; }, kPatience);
  }

  const std::string socket_ = SocketPath();
  prometheus::Registry registry_;
  absl::Mutex mutex_;
  std::vector<std::string> events_ ABSL_GUARDED_BY(mutex_);
  IoThread io_thread_;
  std::unique_ptr<LeaseServer> server_;
};

}  // namespace sluice
