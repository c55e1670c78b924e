#pragma once

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <google/protobuf/wrappers.pb.h>

#include "sluice/fan_out.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/link/link_loop.h"
#include "prometheus/registry.h"
#include "tests/eventually.h"
#include "tests/has_code.h"
#include "tests/notification.h"
#include "tests/unit/fan_out/scripted_server.h"

namespace sluice::testing {

using Text = google::protobuf::StringValue;

inline Text TextOf(std::string value) {
  Text text;
  text.set_value(std::move(value));
  return text;
}
inline std::string Wire(std::string value) {
  return TextOf(std::move(value)).SerializeAsString();
}

// Scripts of messages and of the ends of calls.
inline ScriptedServer::Play Says(std::vector<std::string> values) {
  for (std::string& value : values) value = Wire(std::move(value));
  return [values](const Seen&) { return Script{.messages = values}; };
}
inline ScriptedServer::Play Fails(absl::StatusCode code, std::vector<std::string> values = {}) {
  for (std::string& value : values) value = Wire(std::move(value));
  return [code, values](const Seen&) { return Script{.messages = values, .status = {code, "as the test wants"}}; };
}
inline ScriptedServer::Play Holds(const std::string& value) {
  return [value](const Seen&) { return Script{.messages = {Wire(value)}, .hold_before = 0}; };
}
// The headers are sent at once; the message is not sent before Release.
inline ScriptedServer::Play SendsHeadersAndHolds(const std::string& value) {
  return [value](const Seen&) { return Script{.messages = {Wire(value)}, .hold_before = 0, .early_headers = true}; };
}

// A fan-out, and how it ended. A test that gives up may destroy it before the end.
class Pending {
 public:
  FanOut::Done Done() {
    return [end = end_](FanOutResult result) {
      end->result = std::move(result);
      end->come.Notify();
    };
  }
  bool Await() { return end_->come.Await(); }
  bool ended() const { return end_->come.HasBeenNotified(); }
  const FanOutResult& result() const { return end_->result; }

  std::shared_ptr<FanOutCall> call;

 private:
  struct End {
    FanOutResult result;
    Notification come;
  };
  const std::shared_ptr<End> end_ = std::make_shared<End>();
};

inline void ExpectConsistent(const FanOutResult& result) {
  EXPECT_EQ(result.asked, result.answered + result.failures.size() + result.cancelled);
  EXPECT_LE(result.hedges_won, result.hedges);
  EXPECT_GE(result.response_bytes, 0);
}

// The configuration of a test's link.
struct Way {
  Way(SchedulePolicy by, bool inline_too = false,
      int link_threads = 1)  // NOLINT(google-explicit-constructor): most parameters are only a policy
      : policy(by), inline_callbacks(inline_too), threads(link_threads) {}

  SchedulePolicy policy;
  bool inline_callbacks;
  int threads;
};
inline void PrintTo(const Way& way, std::ostream* out) {
  *out << SchedulePolicyName(way.policy) << (way.inline_callbacks ? ", inline callbacks" : "") << ", " << way.threads
       << " threads";
}
inline std::string NameOf(const ::testing::TestParamInfo<Way>& info) {
  return std::string(SchedulePolicyName(info.param.policy)) + (info.param.inline_callbacks ? "_inline" : "") +
         (info.param.threads > 1 ? "_threads" : "");
}

// A FanOut to servers in this process, over a link with the configuration of the parameter.
class FanOutTest : public ::testing::TestWithParam<Way> {
 protected:
  static inline const Method<Text, Text> kUnary{"/test.Answers/Get"};
  static inline const Method<Text, Text> kStream{"/test.Answers/List", /*server_streaming=*/true};

  // Server i responds with "i".
  void StartServers(size_t count) {
    for (size_t i = 0; i < count; ++i) servers_.push_back(std::make_unique<ScriptedServer>(Says({std::to_string(i)})));
  }
  ScriptedServer& server(size_t i) { return *servers_[i]; }

  void MakeFanOut(Link::Options link = {}, FanOut::Options options = {}) {
    link.schedule.policy = GetParam().policy;
    link.inline_callbacks = GetParam().inline_callbacks;
    link.threads = GetParam().threads;
    auto made = Link::Create(std::move(link));
    ASSERT_TRUE(made.ok()) << made.status();
    link_ = *std::move(made);
    for (const auto& server : servers_) options.workers.push_back(server->address());
    auto fan_out = FanOut::Create(link_, std::move(options));
    ASSERT_TRUE(fan_out.ok()) << fan_out.status();
    fan_out_ = *std::move(fan_out);
  }
  void Start(size_t servers, Link::Options link = {}, FanOut::Options options = {}) {
    StartServers(servers);
    MakeFanOut(std::move(link), std::move(options));
  }

  // Asks the first `asked` workers; each has the replicas. With grants the sizes of the responses are unknown, unless
  // the test sets them, so that the responses are held back. With other policies all responses fit the budget.
  FanOut::Map<Text> Ask(size_t asked, std::vector<size_t> replicas = {}, std::optional<int64_t> bytes = {}) {
    if (!bytes.has_value() && GetParam().policy != SchedulePolicy::kGrants) bytes = 10;
    return [=](size_t worker) -> std::optional<sluice::Ask<Text>> {
      if (worker >= asked) return std::nullopt;
      return sluice::Ask<Text>(TextOf("what?"), bytes, replicas);
    };
  }
  // Options of a link whose budget is fixed, unless the test takes it away. The link is so fast that no response counts
  // as ready at once: only small responses of known size are sent without waiting for a grant. Connections are not
  // watched, so work that is left for a later turn of the link's thread stays there.
  static constexpr int64_t kBudget = 32 << 10;
  static constexpr int64_t kLargeResponse = 20'000;
  static Link::Options FixedBudget() {
    LinkProfile profile;
    profile.capacity_bytes_per_second = 1e12;
    profile.propagation_rtt = absl::Nanoseconds(1);
    return {.schedule = {.profile = profile, .budget_bytes = kBudget, .stall_timeout = absl::Hours(1)},
            .watch_connections = false};
  }
  // Takes the budget away: until LetGo, no request leaves and no response is granted. Bytes that were granted before
  // may still arrive.
  void HoldBack() { SetLease(0); }
  void LetGo() { SetLease(kBudget); }
  void SetLease(int64_t bytes) {
    link_->Await([bytes](LinkLoop& loop) {
      EXPECT_TRUE(loop.SetLease({.bytes = bytes, .link_bytes = kBudget, .plan_bytes = kBudget}).ok());
    });
  }
  // Waits until this number of responses has become ready, held back or not.
  bool AwaitReady(double answers) {
    return Eventually([&] { return Metric("sluice_ready_seconds") == answers; });
  }
  static FanOut::Merge<Text> Ignore() {
    return [](size_t, const Text&) { return absl::OkStatus(); };
  }

  std::unique_ptr<Pending> CallAsync(const FanOut::Map<Text>& map, const FanOutOptions& options = {},
                                     FanOut::Merge<Text> merge = Ignore(), const Method<Text, Text>& method = kUnary) {
    auto pending = std::make_unique<Pending>();
    pending->call = fan_out_->CallAsync(method, map, std::move(merge), options, pending->Done());
    return pending;
  }

  // Waits until no call waits and nothing is in flight.
  bool AwaitIdle() {
    return Eventually([this] {
      const ScheduleState state = link_->State();
      return state.in_flight_bytes == 0 && state.in_flight_calls == 0 && state.waiting_calls == 0 &&
             state.ungranted_calls == 0 && state.blocks == 0 && state.submitted_calls == state.ended_calls;
    });
  }
  bool AwaitState(const std::function<bool(const ScheduleState&)>& condition) {
    return Eventually([&] { return condition(link_->State()); });
  }

  double Metric(const std::string& name, const std::string& label_value = "") {
    for (const prometheus::MetricFamily& family : link_->registry().Collect()) {
      if (family.name != name) continue;
      for (const prometheus::ClientMetric& metric : family.metric) {
        if ((metric.label.empty() ? "" : metric.label.front().value) != label_value) continue;
        return family.type == prometheus::MetricType::Histogram ? static_cast<double>(metric.histogram.sample_count)
                                                                : metric.counter.value;
      }
    }
    ADD_FAILURE() << "no metric " << name << " with label " << label_value;
    return -1;
  }

  double Gauge(const std::string& name) {
    for (const prometheus::MetricFamily& family : link_->gauges().Collect()) {
      if (family.name == name) return family.metric.at(0).gauge.value;
    }
    ADD_FAILURE() << "no gauge " << name;
    return -1;
  }

  std::vector<std::unique_ptr<ScriptedServer>> servers_;
  std::shared_ptr<Link> link_;
  std::unique_ptr<FanOut> fan_out_;
};

}  // namespace sluice::testing
