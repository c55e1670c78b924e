// When a proxy writes pending bytes to a worker or a client.
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/proxy/proxy_loop_fixture.h"

namespace sluice::testing {
namespace {

using Stream = Http2Peer::Stream;

// --- To workers.

using RequestWritesTest = ProxyLoopTest;

// The look-up of the last request's name happens in the turn in which all requests arrive.
TEST_F(RequestWritesTest, RequestsOfAFanOutLeaveWhileTheRestOfItComesIn) {
  StartProxy();
  const auto client = NewClient();
  std::vector<std::unique_ptr<TestHttp2Server>> workers;
  for (int i = 0; i < 8; ++i) {
    workers.push_back(std::make_unique<TestHttp2Server>(Says("!")));
    EXPECT_EQ(Call(*client, workers.back()->address()), "OK");
  }
  bool left = false;
  executor_.Await([&] { names_.on_look_up = [&](const std::string&) { left = workers.front()->AwaitRequests(2); }; });
  for (const auto& worker : workers) client->Open(Head(worker->address()), FrameMessage("?"));
  TestHttp2Server last(Says("!"));
  SetName("last.test:1", std::vector<std::string>{last.address()});
  client->Open(Head("last.test:1"), FrameMessage("?"));
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().streams() == 0; }));
  EXPECT_TRUE(left);
  EXPECT_EQ(last.counts().requests, 1);
}

// --- To clients.

constexpr size_t kMessageBytes = 10'000;

// A worker that sends the parts of a response when the test calls Send.
class AnswerWritesTest : public ProxyLoopTest {
 protected:
  void Start(const ProxyOptions& options = {}, const ScheduleOptions& schedule = Ample()) {
    StartProxy(options, schedule);
    executor_.Await([&] { names_.StopClock(); });
  }
  // Starts a call, and waits for the headers of the response. Afterwards the client sends nothing, because the proxy
  // also writes when it receives bytes.
  Stream& Ask(Http2Peer& client) {
    client.set_grants(false);
    TestHttp2Server other(Says("!"));
    EXPECT_EQ(Call(client, other.address()), "OK") << "and the settings are acknowledged";
    Stream& call = client.Open(Head(worker_.address()), FrameMessage("?"), true, 1 << 20);
    EXPECT_TRUE(Await({&client}, [&] { return !call.headers.empty(); }));
    return call;
  }
  void Send(std::string bytes) {
    worker_.Run([&] { worker_.calls().back()->SendData(std::move(bytes)); });
  }
  bool AwaitHeld(int64_t bytes) {
    return Eventually([&] {
      int64_t held_bytes = 0;
      executor_.Await([&] { held_bytes = proxy_->held_answers().bytes(); });
      return held_bytes == bytes;
    });
  }
  // Starts a call whose response has arrived in part and waits for its rest.
  Stream& AskForPart(Http2Peer& client) {
    Stream& call = Ask(client);
    Send(message_.substr(0, kMessageBytes / 2));
    EXPECT_TRUE(AwaitHeld(kMessageBytes / 2));
    client.Pump();
    EXPECT_EQ(call.data, "");
    return call;
  }

  const std::string message_ = FrameMessage(std::string(kMessageBytes - 5, 'x'));
  TestHttp2Server worker_{[](TestHttp2Server::Call& call) { call.SendHead(); }};
};

TEST_F(AnswerWritesTest, AMessageComesToItsClientWhole) {
  Start();
  const auto client = NewClient();
  const Stream& call = AskForPart(*client);
  Send(message_.substr(kMessageBytes / 2));
  EXPECT_TRUE(Await({client.get()}, [&] { return !call.data.empty(); }));
  EXPECT_TRUE(call.data == message_);
  worker_.Run([&] { worker_.calls().back()->SendTrailers(); });
  EXPECT_TRUE(Await({client.get()}, [&] { return call.closed.has_value(); }));
  EXPECT_EQ(call.status(), "0");
}

TEST_F(AnswerWritesTest, WhatEndsWithinAMessageComesAtOnce) {
  Start();
  const auto client = NewClient();
  const Stream& call = AskForPart(*client);
  worker_.Run([&] { worker_.calls().back()->SendDataAndEnd("end"); });
  EXPECT_TRUE(Await({client.get()}, [&] { return call.closed.has_value(); }));
  EXPECT_EQ(call.data.size(), kMessageBytes / 2 + 3);
}

TEST_F(AnswerWritesTest, TheNextMessageWaitsAsWell) {
  Start();
  const auto client = NewClient();
  const Stream& call = Ask(*client);
  Send(message_);
  EXPECT_TRUE(Await({client.get()}, [&] { return call.data.size() == kMessageBytes; }));
  Send(message_.substr(0, 100));
  EXPECT_TRUE(AwaitHeld(100));
  Send(message_.substr(100));
  EXPECT_TRUE(Await({client.get()}, [&] { return call.data.size() > kMessageBytes; }));
  EXPECT_TRUE(call.data == message_ + message_);
}

TEST_F(AnswerWritesTest, OfALargeMessageWhatIsThereComes) {
  Start();
  const auto client = NewClient();
  const Stream& call = Ask(*client);
  const std::string message = FrameMessage(std::string(100'000, 'x'));
  Send(message.substr(0, 20'000));
  EXPECT_TRUE(Await({client.get()}, [&] { return call.data.size() >= 16 << 10; }));
  Send(message.substr(20'000));
  EXPECT_TRUE(Await({client.get()}, [&] { return call.data.size() == message.size(); }));
  EXPECT_TRUE(call.data == message);
}

TEST_F(AnswerWritesTest, WhatWaitsComesWithAnotherAnswer) {
  Start();
  const auto client = NewClient();
  const Stream& call = AskForPart(*client);
  TestHttp2Server other(Says("!"));
  EXPECT_EQ(Call(*client, other.address()), "OK");
  EXPECT_EQ(call.data.size(), kMessageBytes / 2);
}

TEST_F(AnswerWritesTest, WhatWaitsComesAfterASecond) {
  Start();
  const auto client = NewClient();
  const Stream& call = AskForPart(*client);
  executor_.Await([&] { names_.PutForward(std::chrono::seconds(1)); });
  EXPECT_TRUE(Await({client.get()}, [&] { return !call.data.empty(); }));
  EXPECT_EQ(call.data.size(), kMessageBytes / 2);
  EXPECT_TRUE(AwaitHeld(0));
}

// Fewer bytes wait than a call may hold; otherwise the rest would never be requested. The budget is too small for the
// schedule to grant the response unrequested.
TEST_F(AnswerWritesTest, AMessageComesWhereACallMayHoldLittle) {
  Start({.max_held_bytes_per_call = 1000}, WithBudget(32 << 10));
  const auto client = NewClient();
  const Stream& call = Ask(*client);
  const std::string message = FrameMessage(std::string(100'000, 'x'));
  Send(message);
  EXPECT_TRUE(Await({client.get()}, [&] { return call.data.size() == message.size(); }));
  EXPECT_TRUE(call.data == message);
}

TEST_F(AnswerWritesTest, ACallWhoseMessageIsCutEnds) {
  Start();
  const auto client = NewClient();
  const Stream& call = AskForPart(*client);
  worker_.Run([&] { worker_.calls().back()->Reset(Http2Error::kInternalError); });
  EXPECT_TRUE(Await({client.get()}, [&] { return call.closed.has_value(); }));
  EXPECT_TRUE(call.is(StreamEnd::Kind::kReset, Http2Error::kInternalError));
  EXPECT_TRUE(AwaitHeld(0));
}

}  // namespace
}  // namespace sluice::testing
