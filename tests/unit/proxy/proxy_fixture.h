#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sluice/link.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/grpc_wire/request.h"
#include "lib/proxy/proxy_server.h"
#include "tests/eventually.h"
#include "tests/has_code.h"
#include "tests/unit/link/test_http2_server.h"
#include "tests/unit/proxy/http2_peer.h"

namespace sluice::testing {

// A proxy on a link, and clients that use Http2Peer. The workers are on loopback.
class ProxyTest : public ::testing::Test {
 protected:
  // More than any test needs.
  static ScheduleOptions Ample() { return WithBudget(16 << 20); }
  // Every response that is not known to be small waits for a grant: see FanOutTest::FixedBudget.
  static ScheduleOptions WithBudget(int64_t bytes) {
    LinkProfile profile;
    profile.capacity_bytes_per_second = 1e12;
    profile.propagation_rtt = absl::Nanoseconds(1);
    profile.buffer_bytes = bytes;
    return {.profile = profile, .budget_bytes = bytes, .stall_timeout = absl::Hours(1)};
  }

  void StartProxy(const ScheduleOptions& schedule = Ample()) {
    auto link = Link::Create(Link::Options{.schedule = schedule, .watch_connections = false});
    ASSERT_TRUE(link.ok()) << link.status();
    link_ = *std::move(link);
    if (options_.listeners.empty()) options_.listeners = {{.address = "127.0.0.1:0", .route = ""}};
    if (options_.workers.empty()) options_.workers = {"127.0.0.0/8", "localhost"};
    auto proxy = ProxyServer::Start(link_, options_);
    ASSERT_TRUE(proxy.ok()) << proxy.status();
    proxy_ = *std::move(proxy);
  }
  std::string address(size_t listener = 0) const { return proxy_->addresses()[listener]; }
  std::unique_ptr<Http2Peer> NewClient(Http2Session::Options options = {}) {
    auto client = std::make_unique<Http2Peer>(ConnectTo(address()), options);
    client->Flush();
    return client;
  }
  // Makes a call from a new client, for tests that only check that the proxy still serves.
  void ExpectServes(const std::string& worker, const std::string& request = "?") {
    const auto client = NewClient();
    const Http2Peer::Stream& call = client->Open(Head(worker), FrameMessage(request));
    EXPECT_TRUE(Await({client.get()}, [&] { return call.closed.has_value(); }));
    EXPECT_EQ(call.status(), "0") << call.Field("grpc-message");
  }

  // The grpc-status of a call by this client.
  static std::string StatusOf(Http2Peer& client, const std::string& worker) {
    const Http2Peer::Stream& call = client.Open(Head(worker), FrameMessage("?"));
    EXPECT_TRUE(Await({&client}, [&] { return call.closed.has_value(); }));
    return call.status();
  }

  static HeaderList Head(const std::string& worker, const HeaderList& more = {}) {
    HeaderList headers = {{":method", "POST"},    {":scheme", "http"}, {":path", "/test.Answers/Get"},
                          {":authority", worker}, {"te", "trailers"},  {"content-type", "application/grpc"}};
    headers.insert(headers.end(), more.begin(), more.end());
    return headers;
  }

  // The sum of the series of a family whose labels are these: `code="OK"`.
  double Metric(const std::string& family, const std::string& label = "", const std::string& value = "") const {
    return SumOf(link_->registry(), family, label, value);
  }
  static double SumOf(const prometheus::Registry& registry, const std::string& family, const std::string& label,
                      const std::string& value) {
    double sum = 0;
    for (const auto& collected : registry.Collect()) {
      if (collected.name != family) continue;
      for (const auto& metric : collected.metric) {
        bool is = label.empty();
        for (const auto& pair : metric.label) is = is || (pair.name == label && pair.value == value);
        if (is) sum += metric.counter.value + metric.gauge.value;
      }
    }
    return sum;
  }
  bool AwaitMetric(const std::string& family, double value) {
    return Eventually([&] { return Metric(family) == value; });
  }
  // Waits until no call is left and nothing is in flight.
  bool AwaitIdle() {
    return Eventually([this] {
      const ScheduleState state = link_->State();
      return Metric("sluice_proxy_calls") == 0 && Metric("sluice_proxy_held_bytes") == 0 &&
             Metric("sluice_proxy_held_request_bytes") == 0 && state.in_flight_bytes == 0 &&
             state.submitted_calls == state.ended_calls;
    });
  }

  ProxyServer::Options options_;  // for StartProxy
  std::shared_ptr<Link> link_;
  std::unique_ptr<ProxyServer> proxy_;
};

// The handler of most workers in tests.
inline TestHttp2Server::Handler Says(const std::string& answer) {
  return [answer](TestHttp2Server::Call& call) { call.Answer(answer); };
}

}  // namespace sluice::testing
