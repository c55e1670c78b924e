// Tunnels to workers that take turns in the schedule.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "lib/net/worker_address.h"
#include "tests/eventually.h"
#include "tests/unit/net/link_thread.h"
#include "tests/unit/net/send_window.h"
#include "tests/unit/net/test_listener.h"
#include "tests/unit/proxy/scheduled_tunnel_fixture.h"

namespace sluice::testing {
namespace {

using std::chrono_literals::operator""ms;
using ::testing::EndsWith;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

TEST_F(ScheduledTunnelTest, ARequestWaitsUntilTheWindowOfItsResponseFits) {
  for (const char* name : {"a", "b", "c"}) Add(name).client().Send("?");
  EXPECT_TRUE(AwaitTurns(3));
  EXPECT_THAT(requests_.Await(2), SizeIs(2));
  EXPECT_GT(ChargedBytes(), 2 * 2 * 1448);
  EXPECT_LE(ChargedBytes(), 10'000);
  // Two workers think for longer than a tunnel waits.
  PutForward(200ms);
  EXPECT_THAT(requests_.Await(3), UnorderedElementsAre("a ?", "b ?", "c ?"));
}

class ScheduledTunnelClassTest : public ScheduledTunnelTest {
 protected:
  void SetUp() override {
    ScheduleOptions schedule = TwoWindows();
    schedule.classes = {{.name = "queries", .weight = 3}, {.name = "scan", .weight = 1}};
    StartProxy({.worker_tunnel_class = "scan"}, schedule);
    executor_.Await([&] { names_.StopClock(); });
  }
};

TEST_F(ScheduledTunnelClassTest, TurnsAreInTheClassOfTunnels) {
  Pair& pair = Add("a");
  pair.client().Send("?");
  pair.Answer(std::string(1000, 'x'));
  EXPECT_EQ(pair.client().ReceiveUntil(std::string(1000, 'x')).size(), 1000U);
  executor_.Await([&] {
    EXPECT_EQ(loop_->schedule().ClassState(0).received_bytes, 0);
    EXPECT_GE(loop_->schedule().ClassState(1).received_bytes, 1000);
  });
}

TEST_F(ScheduledTunnelClassTest, TurnsOfAClientWithAClassAreInThat) {
  user_ = 7;
  executor_.Await([&] {
    const std::vector<ClientPolicies::Group> groups = {
        {.users = {*user_}, .names = {}, .workers = {"127.0.0.0/8"}, .traffic_class = "queries"}};
    proxy_->Reconfigure(*ClientPolicies::Create({}, groups), {.worker_tunnel_class = "scan"});
  });
  Pair& pair = Add("a");
  pair.client().Send("?");
  pair.Answer(std::string(1000, 'x'));
  EXPECT_EQ(pair.client().ReceiveUntil(std::string(1000, 'x')).size(), 1000U);
  executor_.Await([&] {
    EXPECT_GE(loop_->schedule().ClassState(0).received_bytes, 1000);
    EXPECT_EQ(loop_->schedule().ClassState(1).received_bytes, 0);
  });
}

TEST_F(ScheduledTunnelTest, AResponseThatHasEndedLetsTheNextRequestPass) {
  for (const char* name : {"a", "b", "c"}) Add(name).client().Send("?");
  EXPECT_TRUE(AwaitTurns(3));
  const std::string first = requests_.Await(2).front().substr(0, 1);
  Pair& pair = *pairs_[static_cast<size_t>(first[0] - 'a')];
  pair.Answer(std::string(1000, 'x'));
  EXPECT_EQ(pair.client().ReceiveUntil(std::string(1000, 'x')).size(), 1000U);
  EXPECT_THAT(requests_.events(), SizeIs(2)) << "more of the response may come";
  PutForward(2ms);
  EXPECT_THAT(requests_.Await(3), SizeIs(3));
}

TEST_F(ScheduledTunnelTest, ATurnEndsWithItsConnection) {
  for (const char* name : {"a", "b", "c"}) Add(name).client().Send("?");
  EXPECT_TRUE(AwaitTurns(3));
  const std::string first = requests_.Await(2).front().substr(0, 1);
  pairs_[static_cast<size_t>(first[0] - 'a')]->client().Break();
  EXPECT_TRUE(AwaitTurns(2));
  EXPECT_THAT(requests_.events(), SizeIs(2)) << "a window may still be on its way";
  PutForward(1ms);
  EXPECT_THAT(requests_.Await(3), SizeIs(3));
}

TEST_F(ScheduledTunnelTest, AScheduleThatIsSwitchedOffLetsAllTurnsBegin) {
  for (const char* name : {"a", "b", "c"}) Add(name).client().Send("?");
  EXPECT_TRUE(AwaitTurns(3));
  EXPECT_THAT(requests_.Await(2), SizeIs(2));
  Switch(SchedulePolicy::kUnscheduled);
  EXPECT_THAT(requests_.Await(3), SizeIs(3));
  for (const auto& pair : pairs_) pair->Answer(std::string(1000, 'x'));
  for (const auto& pair : pairs_) EXPECT_EQ(pair->client().ReceiveUntil(std::string(1000, 'x')).size(), 1000U);
  Switch(SchedulePolicy::kGrants);
  PutForward(2ms);
  EXPECT_TRUE(AwaitTurns(0));
  EXPECT_EQ(ChargedBytes(), 0);
}

TEST_F(ScheduledTunnelTest, LargeResponsesComeWholeWhileThePolicyChanges) {
  executor_.Await([&] { names_.StartClock(); });
  const std::string large(1 << 20, 'x');
  for (const char* name : {"a", "b", "c", "d"}) Add(name).client().Send("?");
  for (const auto& pair : pairs_) pair->Answer(large + "!");
  std::atomic<bool> done = false;
  std::thread changer([&] {
    for (int i = 1; !done; ++i) Switch(static_cast<SchedulePolicy>(i % 4));
  });
  for (const auto& pair : pairs_) EXPECT_EQ(pair->client().ReceiveUntil("!"), large + "!");
  done = true;
  changer.join();
  Switch(SchedulePolicy::kGrants);
  EXPECT_TRUE(AwaitTurns(0));
  EXPECT_EQ(ChargedBytes(), 0);
}

TEST_F(ScheduledTunnelTest, LargeResponsesComeWholeBesideEachOther) {
  executor_.Await([&] { names_.StartClock(); });
  const std::string large(1 << 20, 'x');
  for (const char* name : {"a", "b", "c", "d"}) Add(name).client().Send("?");
  for (const auto& pair : pairs_) pair->Answer(large + "!");
  for (const auto& pair : pairs_) EXPECT_EQ(pair->client().ReceiveUntil("!"), large + "!");
  EXPECT_TRUE(AwaitTurns(0));
  EXPECT_EQ(ChargedBytes(), 0);
}

TEST_F(ScheduledTunnelTest, TheWindowOfATunnelAloneGrows) {
  TearDown();
  ScheduleOptions ample = TwoWindows();
  ample.profile.buffer_bytes = 4 << 20;
  StartProxy({}, ample);
  executor_.Await([&] { names_.StartClock(); });
  std::atomic<bool> grown = false;
  TestListener worker("127.0.0.1:0", [&grown](int fd) {
    ReceiveAtLeast(fd, 1);
    while (!grown) SendAll(fd, std::string(1 << 20, 'x'));
  });
  TestSocket client = Dial(worker.address().text);
  client.Send("?");
  std::thread reader([&client] {
    std::string bytes(64 << 10, '\0');
    while (recv(client.fd(), bytes.data(), bytes.size(), 0) > 0) continue;
  });
  EXPECT_TRUE(Eventually([&] { return ChargedBytes() > (128 << 10); }));
  grown = true;
  reader.join();
  EXPECT_TRUE(AwaitTurns(0));
}

// A third of this budget is far more than the response.
TEST_F(ScheduledTunnelTest, TheWindowGrowsBeforeAThirdOfALargeBudgetHasCome) {
  TearDown();
  ScheduleOptions huge = TwoWindows();
  huge.profile.buffer_bytes = 1 << 30;
  StartProxy({}, huge);
  Pair& pair = Add("a");
  pair.client().Send("?");
  const std::string response(8 << 20, 'x');
  pair.Answer(response + "!");
  EXPECT_EQ(pair.client().ReceiveUntil("!").size(), response.size() + 1);
  EXPECT_GE(SumOf(registry_, "sluice_tunnel_turns_total", "end", "part"), 2);
}

// A connection that begins with a small buffer has no window scale, and never more than 128 KB on the way.
TEST_F(ScheduledTunnelTest, TheWindowOfATunnelWithALargeBudgetExceeds128KB) {
  TearDown();
  ScheduleOptions huge = TwoWindows();
  huge.profile.buffer_bytes = 64 << 20;
  StartProxy({}, huge);
  executor_.Await([&] { names_.StartClock(); });
  std::atomic<bool> grown = false;
  TestListener worker("127.0.0.1:0", [&grown](int fd) {
    ReceiveAtLeast(fd, 1);
    while (!grown) {
      SendAll(fd, std::string(1 << 20, 'x'));
      grown = grown || SendWindow(fd) > (192 << 10);
    }
  });
  TestSocket client = Dial(worker.address().text);
  client.Send("?");
  std::thread reader([&client] {
    std::string bytes(64 << 10, '\0');
    while (recv(client.fd(), bytes.data(), bytes.size(), 0) > 0) continue;
  });
  EXPECT_TRUE(Eventually([&] { return grown.load(); }));
  grown = true;
  reader.join();
}

// Each phase of the tunnels to one pattern of workers.
TEST_F(ScheduledTunnelTest, MetricsShowTunnelsByPhaseAndPattern) {
  const auto tunnels = [this](const std::string& phase) { return SumOf(registry_, "sluice_tunnels", "phase", phase); };
  for (const char* name : {"a", "b", "c"}) Add(name).client().Send("?");
  EXPECT_TRUE(AwaitTurns(3));
  EXPECT_EQ(tunnels("turn"), 2);
  EXPECT_EQ(tunnels("waiting"), 1);
  EXPECT_EQ(SumOf(registry_, "sluice_tunnel_window_bytes", "workers", "127.0.0.0/8"), 2 * 2 * 1448);
  const std::string first = requests_.Await(2).front().substr(0, 1);
  Pair& pair = *pairs_[static_cast<size_t>(first[0] - 'a')];
  pair.Answer(std::string(1000, 'x'));
  EXPECT_EQ(pair.client().ReceiveUntil(std::string(1000, 'x')).size(), 1000U);
  EXPECT_TRUE(Eventually([&] {
    return SumOf(registry_, "sluice_tunnel_received_bytes_total", "workers", "127.0.0.0/8") == 1000;
  })) << "counted after the bytes are sent";
  PutForward(2ms);
  EXPECT_THAT(requests_.Await(3), SizeIs(3));
  EXPECT_EQ(tunnels("quiet"), 1);
  EXPECT_EQ(tunnels("turn"), 2);
  pairs_.clear();
  EXPECT_TRUE(Eventually([&] { return SumOf(registry_, "sluice_tunnels", "", "") == 0; }));
  EXPECT_EQ(SumOf(registry_, "sluice_tunnel_window_bytes", "", ""), 0);
}

TEST_F(ScheduledTunnelTest, SocksOpensATunnelToo) {
  TestListener worker("127.0.0.1:0", [](int fd) { SendAll(fd, ReceiveAtLeast(fd, 5) + "!"); });
  const auto port = static_cast<uint16_t>(ParseWorkerTarget(worker.address().text)->port);
  TestSocket socket = ConnectTo(listener_->address());
  socket.Send(absl::string_view("\x05\x01\x00", 3));
  EXPECT_EQ(socket.ReceiveUntil(absl::string_view("\x05\x00", 2)), std::string("\x05\x00", 2));
  std::string request("\x05\x01\x00\x01\x7f\x00\x00\x01", 8);
  request += {static_cast<char>(port >> 8), static_cast<char>(port & 0xff)};
  socket.Send(request);
  const std::string open("\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00", 10);
  EXPECT_EQ(socket.ReceiveUntil(open), open);
  socket.Send("hello");
  EXPECT_EQ(socket.ReceiveUntil("!"), "hello!");
  EXPECT_TRUE(AwaitTurns(0)) << "the worker has ended the connection";
}

TEST_F(ScheduledTunnelTest, SocksTellsWhyItsTargetIsNotReached) {
  const auto code = [&](const std::string& address) {
    TestSocket socket = ConnectTo(listener_->address());
    socket.Send(absl::StrCat(absl::string_view("\x05\x01\x00", 3), address));
    const std::string received = socket.ReceiveAll();
    return received.size() == 12 ? static_cast<int>(received[3]) : -1;
  };
  const std::string to_ipv4("\x05\x01\x00\x01", 4);
  EXPECT_EQ(code(to_ipv4 + std::string("\xa9\xfe\xa9\xfe\x00\x50", 6)), 2) << "169.254.169.254 is never a worker";
  const auto port = static_cast<uint16_t>(ParseWorkerTarget(AddressOfNobody().text)->port);
  EXPECT_EQ(code(to_ipv4 + std::string("\x7f\x00\x00\x01", 4) + static_cast<char>(port >> 8) +
                 static_cast<char>(port & 0xff)),
            5);
}

TEST_F(ScheduledTunnelTest, WhatAWorkerSendsByItselfTakesATurn) {
  TestListener worker("127.0.0.1:0", [](int fd) {
    SendAll(fd, std::string(2000, 'x') + "!");
    ReceiveAll(fd);
  });
  TestSocket client = ConnectTo(listener_->address());  // which waits for the greeting
  client.Send(absl::StrCat("CONNECT ", worker.address().text, " HTTP/1.1\r\n\r\n"));
  EXPECT_THAT(client.ReceiveUntil("!"), EndsWith("\r\n\r\n" + std::string(2000, 'x') + "!"));
  EXPECT_TRUE(AwaitTurns(1));
  PutForward(200ms);
  EXPECT_TRUE(AwaitTurns(0));
}

TEST_F(ScheduledTunnelTest, AClientThatReadsNothingHoldsNoTurn) {
  Add("a").client().Send("?");
  EXPECT_TRUE(AwaitTurns(1));
  executor_.Await([&] { names_.StartClock(); });
  pairs_[0]->Answer(std::string(16 << 20, 'x') + "!");
  EXPECT_TRUE(AwaitTurns(0)) << "the proxy and the client's socket are full";
  EXPECT_EQ(pairs_[0]->client().ReceiveUntil("!").size(), (16U << 20) + 1);
}

}  // namespace
}  // namespace sluice::testing
