#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/eventually.h"
#include "tests/unit/net/link_thread.h"
#include "tests/unit/net/test_listener.h"
#include "tests/unit/proxy/proxy_loop_fixture.h"

namespace sluice::testing {

// The test holds the clock, and the budget has room for two windows.
class ScheduledTunnelTest : public ProxyLoopTest {
 protected:
  // A tunnel, and the worker at its other end.
  class Pair {
   public:
    Pair(ScheduledTunnelTest& test, const std::string& name)
        : worker_("127.0.0.1:0", [&test, name, this](int fd) { Serve(test, name, fd); }),
          client_(test.Dial(worker_.address().text)) {}
    ~Pair() { answer_.Add("end"); }

    TestSocket& client() { return client_; }
    void Answer(const std::string& bytes) { answer_.Add(bytes); }

   private:
    void Serve(ScheduledTunnelTest& test, const std::string& name, int fd) {
      for (size_t i = 1;; ++i) {
        const std::string request = ReceiveAtLeast(fd, 1);
        if (request.empty()) return;
        test.requests_.Add(absl::StrCat(name, " ", request));
        const std::string answer = answer_.Await(i).back();
        if (answer == "end") return;
        SendAll(fd, answer);
      }
    }

    EventLog answer_;
    TestListener worker_;
    TestSocket client_;
  };

  static ScheduleOptions TwoWindows(SchedulePolicy policy = SchedulePolicy::kGrants) {
    ScheduleOptions options;
    options.policy = policy;
    options.profile.capacity_bytes_per_second = 1e9 / 8;
    options.profile.propagation_rtt = absl::Microseconds(100);
    options.profile.buffer_bytes = 10'000;
    options.profile.packet_payload_bytes = 1448;
    options.profile.frame_bytes = 1514;
    return options;
  }
  void SetUp() override {
    StartProxy({}, TwoWindows());
    executor_.Await([&] { names_.StopClock(); });
  }
  void TearDown() override {
    pairs_.clear();
    ProxyLoopTest::TearDown();
  }

  TestSocket Dial(const std::string& target) const {
    TestSocket socket = ConnectTo(listener_->address());
    socket.Send(absl::StrCat("CONNECT ", target, " HTTP/1.1\r\nHost: ", target, "\r\n\r\n"));
    EXPECT_THAT(socket.ReceiveUntil("\r\n\r\n"), ::testing::StartsWith("HTTP/1.1 200 "));
    return socket;
  }
  Pair& Add(const std::string& name) { return *pairs_.emplace_back(std::make_unique<Pair>(*this, name)); }
  // Waits until so many turns have begun or wait.
  bool AwaitTurns(int64_t turns) {
    return Eventually([&] {
      int64_t calls = 0;
      executor_.Await([&] { calls = loop_->schedule().State().in_flight_calls; });
      return calls == turns;
    });
  }
  int64_t ChargedBytes() {
    int64_t bytes = 0;
    executor_.Await([&] { bytes = loop_->schedule().State().in_flight_bytes; });
    return bytes;
  }
  void PutForward(std::chrono::nanoseconds time) {
    executor_.Await([&] { names_.PutForward(time); });
  }
  void Switch(SchedulePolicy policy) {
    executor_.Await([&] { EXPECT_TRUE(loop_->Reconfigure(TwoWindows(policy)).ok()); });
  }

  EventLog requests_;
  std::vector<std::unique_ptr<Pair>> pairs_;
};

}  // namespace sluice::testing
