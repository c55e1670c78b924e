#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "lib/proxy/client_connection.h"
#include "tests/unit/link/test_http2_connection.h"
#include "tests/unit/proxy/proxy_fixture.h"

namespace sluice::testing {
namespace {

using std::chrono::milliseconds;
using Kind = StreamEnd::Kind;

constexpr size_t kAnswerBytes = 2 << 20;
constexpr int kCalls = 8;

// Clients that request large responses and read nothing.
class SlowClientTest : public ProxyTest {
 protected:
  SlowClientTest() { options_.proxy.max_held_bytes_per_call = 64 << 10; }

  void Start(std::chrono::nanoseconds stall_timeout = std::chrono::hours(1),
             const ScheduleOptions& schedule = Ample()) {
    // The buffer of a TCP socket grows without bound; the buffer of a Unix socket does not.
    options_.listeners = {{.address = absl::StrCat("unix-abstract:sluice-slow-", getpid()), .route = ""}};
    options_.proxy.client_stall_timeout = stall_timeout;
    StartProxy(schedule);
  }
  // Returns the number of response bytes that the worker has sent.
  size_t SentBytes() {
    size_t sent = 0;
    worker_.Run([&] {
      for (const auto& call : worker_.calls()) {
        if (call->request() == "large")
          sent += kAnswerBytes - call->connection().session().unsent_bytes(call->stream());
      }
    });
    return sent;
  }
  std::vector<Http2Peer::Stream*> Ask(Http2Peer& client, uint32_t granted_bytes) {
    std::vector<Http2Peer::Stream*> calls;
    for (int i = 0; i < kCalls; ++i) {
      calls.push_back(&client.Open(Head(worker_.address()), FrameMessage("large"), true, granted_bytes));
    }
    return calls;
  }

  TestHttp2Server worker_{[](TestHttp2Server::Call& call) {
    if (call.request() != "large") return call.Answer("small");
    call.SendHead();
    call.SendData(FrameMessage(std::string(kAnswerBytes - 5, 'x')));
    call.SendTrailers();
  }};
};

TEST_F(SlowClientTest, AClosedWindowHoldsLittleOfEachAnswerAndNobodyElse) {
  Start();
  const auto client = NewClient({.stream_window_bytes = 0});
  const auto calls = Ask(*client, 0);
  EXPECT_TRUE(Await({client.get()}, [&] { return Metric("sluice_proxy_held_bytes") >= kCalls * (32 << 10); }));
  for (int i = 0; i < 20; ++i) ExpectServes(worker_.address(), "small");
  EXPECT_LE(Metric("sluice_proxy_held_bytes"), kCalls * (68 << 10));
  EXPECT_LE(SentBytes(), kCalls * (68 << 10));
  // The responses continue once the client reads.
  for (auto* call : calls) client->session().Grant(call->id, kAnswerBytes);
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().streams() == 0; }));
  for (const auto* call : calls) EXPECT_EQ(call->data.size(), kAnswerBytes);
  EXPECT_TRUE(AwaitIdle());
}

TEST_F(SlowClientTest, ASocketThatIsNotReadHoldsLittleOfEachAnswerAndNobodyElse) {
  Start();
  const auto client = NewClient();
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().open_slots() > 100; }));
  const auto calls = Ask(*client, 1 << 30);
  client->Flush();
  // The backlog of a connection, the kernel's buffer, and twice the bytes that each call may hold: in the session, and
  // on their way.
  constexpr size_t kBound = (1 << 20) + 2 * kCalls * (64 << 10);
  EXPECT_TRUE(Eventually([&] { return SentBytes() > (512 << 10); }));
  for (int i = 0; i < 20; ++i) ExpectServes(worker_.address(), "small");
  EXPECT_LE(SentBytes(), kBound);
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().streams() == 0; }));
  for (const auto* call : calls) EXPECT_EQ(call->data.size(), kAnswerBytes);
  EXPECT_TRUE(AwaitIdle());
}

// Responses of 16 MB fill the socket again as soon as it has room.
TEST_F(SlowClientTest, AClientThatReadsCanAskWhileItsResponsesFillTheSocket) {
  options_.proxy.max_held_bytes_per_call = 128 << 10;
  Start();
  const auto client = NewClient();
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().open_slots() > 100; }));
  const auto calls = Ask(*client, 1 << 30);
  const auto received = [&] {
    return std::accumulate(calls.begin(), calls.end(), size_t{0},
                           [](size_t sum, const auto* call) { return sum + call->data.size(); });
  };
  EXPECT_TRUE(Await({client.get()}, [&] { return received() > (1 << 20); }));
  for (int i = 0; i < 4; ++i) {
    const size_t before = received();
    const Http2Peer::Stream& small = client->Open(Head(worker_.address()), FrameMessage("?"));
    EXPECT_TRUE(Await({client.get()}, [&] { return small.closed.has_value(); }));
    EXPECT_EQ(small.status(), "0");
    // The kernel's buffers, which grow to 10 MiB by default, the backlog, and the bytes of the other calls that are
    // held or on their way. Each of the responses has more.
    EXPECT_LE(received() - before, 12u << 20);
  }
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().streams() == 0; }));
  EXPECT_TRUE(AwaitIdle());
}

// There are 32 responses that may each hold 64 KiB, but together only half a megabyte.
TEST_F(SlowClientTest, ManyAnswersHoldNoMoreThanIsHeldForAll) {
  constexpr int64_t kHeldBytes = 512 << 10;
  options_.proxy.max_held_bytes = kHeldBytes;
  options_.proxy.max_calls = 128;  // 4 KiB each
  Start();
  const auto client = NewClient({.stream_window_bytes = 0});
  std::vector<Http2Peer::Stream*> calls;
  for (int i = 0; i < 4; ++i) {
    for (Http2Peer::Stream* call : Ask(*client, 0)) calls.push_back(call);
  }
  EXPECT_TRUE(Await({client.get()}, [&] { return Metric("sluice_proxy_held_bytes") >= kHeldBytes / 2; }));
  double most = 0;
  // At the same time, a client that reads receives a whole large response, although it can hold little at a time.
  const auto reader = NewClient({.stream_window_bytes = 1 << 20});
  const auto& read = reader->Open(Head(worker_.address()), FrameMessage("large"));
  EXPECT_TRUE(Await({client.get(), reader.get()}, [&] {
    most = std::max(most, Metric("sluice_proxy_held_bytes"));
    return read.closed.has_value();
  }));
  EXPECT_EQ(read.status(), "0");
  EXPECT_EQ(read.data.size(), kAnswerBytes);
  EXPECT_LE(most, 2 * kHeldBytes);
  for (const auto* call : calls) {
    EXPECT_TRUE(!call->closed.has_value() || call->is(Kind::kReset, Http2Error::kEnhanceYourCalm));
  }
}

TEST_F(SlowClientTest, WhatWaitsAtASocketIsHeld) {
  Start();
  const auto client = NewClient({.max_unsent_bytes_per_stream = 4 << 20});
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().open_slots() > 100; }));
  Ask(*client, 1 << 30);
  client->Flush();
  // Less than the whole backlog of a socket, and more than the calls hold.
  EXPECT_TRUE(Eventually([&] { return Metric("sluice_proxy_held_bytes") > (kCalls * (64 << 10)) + (128 << 10); }));
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().streams() == 0; }));
  EXPECT_TRUE(AwaitIdle());
}

// Many calls with large headers, which wait for the socket; no window limits headers.
TEST_F(SlowClientTest, HeadsThatWaitForASocketAreHeld) {
  constexpr int kHeads = 90;
  options_.proxy.max_held_bytes = 1 << 20;
  options_.proxy.max_calls = 1024;
  Start();
  TestHttp2Server worker([](TestHttp2Server::Call& call) { call.SendHead({{"x-large", std::string(50'000, 'x')}}); });
  const auto client = NewClient();
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().open_slots() > kHeads; }));
  for (int i = 0; i < kHeads; ++i) client->Open(Head(worker.address()), FrameMessage("?"));
  client->Flush();
  EXPECT_TRUE(AwaitMetric("sluice_proxy_connections", 0)) << "it has more than its bound";
  EXPECT_TRUE(AwaitIdle());
  ExpectServes(worker_.address(), "small");
}

// A client with wide windows has no larger backlog at its socket than any other client.
TEST_F(SlowClientTest, AWideWindowTakesNoMoreToTheSocket) {
  options_.proxy.max_held_bytes = 2 << 20;
  options_.proxy.max_calls = 512;
  Start();
  const auto client = NewClient({.connection_window_bytes = 1 << 30, .max_unsent_bytes_per_stream = 4 << 20});
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().open_slots() > 100; }));
  Ask(*client, 1 << 30);
  client->Flush();
  EXPECT_TRUE(Eventually([&] { return SentBytes() > (512 << 10); }));
  for (int i = 0; i < 50; ++i) ExpectServes(worker_.address(), "small");
  EXPECT_LE(SentBytes(), size_t{3} << 20);
}

TEST_F(SlowClientTest, ACallThatIsStuckEnds) {
  Start(milliseconds(100));
  const auto client = NewClient({.stream_window_bytes = 0});
  const auto calls = Ask(*client, 0);
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().streams() == 0; }));
  for (const auto* call : calls) EXPECT_TRUE(call->is(Kind::kReset, Http2Error::kEnhanceYourCalm));
  EXPECT_TRUE(AwaitIdle());
  EXPECT_EQ(Metric("sluice_proxy_stuck_calls_total"), kCalls);
  // The connection still works for other calls.
  const auto& call = client->Open(Head(worker_.address()), FrameMessage("small"), true, 1000);
  EXPECT_TRUE(Await({client.get()}, [&] { return call.closed.has_value(); }));
  EXPECT_EQ(call.status(), "0");
}

TEST_F(SlowClientTest, ADeadlineSaysThatTheClientHasNotRead) {
  Start();
  const auto client = NewClient({.stream_window_bytes = 0});
  auto& call = client->Open(Head(worker_.address(), {{"grpc-timeout", "1S"}}), FrameMessage("large"), true, 0);
  EXPECT_TRUE(Await({client.get()}, [this] {
    bool ended = false;
    worker_.Run([&] { ended = !worker_.calls().empty() && worker_.calls()[0]->closed(); });
    return ended;
  })) << "the proxy has given it up";
  client->session().Grant(call.id, kAnswerBytes);
  EXPECT_TRUE(Await({client.get()}, [&] { return call.closed.has_value(); }));
  EXPECT_EQ(call.status(), "4");
  EXPECT_THAT(call.Field("grpc-message"), ::testing::HasSubstr("waited for the client to read for"));
}

TEST_F(SlowClientTest, AConnectionThatIsStuckEnds) {
  Start(milliseconds(100));
  const auto client = NewClient();
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().open_slots() > 100; }));
  Ask(*client, 1 << 30);
  client->Flush();
  EXPECT_TRUE(Eventually([&] { return SentBytes() > (512 << 10); }));
  EXPECT_TRUE(AwaitMetric("sluice_proxy_connections", 0));
  EXPECT_TRUE(AwaitIdle());
  EXPECT_EQ(Metric("sluice_proxy_stuck_calls_total"), kCalls);
}

// All responses have left their calls and wait for the socket.
TEST_F(SlowClientTest, AConnectionThatIsStuckEndsThoughItHasNoCall) {
  Start(milliseconds(100));
  const auto client = NewClient({.max_unsent_bytes_per_stream = 4 << 20});
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().open_slots() > 100; }));
  TestHttp2Server worker([](TestHttp2Server::Call& call) { call.Answer(std::string(60'000, 'x')); });
  for (int i = 0; i < 20; ++i) client->Open(Head(worker.address()), FrameMessage("?"), true, 1 << 20);
  client->Flush();
  EXPECT_TRUE(worker.AwaitRequests(20));
  EXPECT_TRUE(AwaitMetric("sluice_proxy_connections", 0));
  EXPECT_TRUE(AwaitIdle());
}

// The unsent bytes are fewer than the client's allowance, and no more bytes arrive.
TEST_F(SlowClientTest, AConnectionThatIsStuckWithLittleEnds) {
  Start(milliseconds(100));
  const auto client = NewClient({.max_unsent_bytes_per_stream = 4 << 20});
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().open_slots() > 100; }));
  TestHttp2Server worker([](TestHttp2Server::Call& call) { call.Answer(std::string(60'000, 'x')); });
  for (int i = 0; i < 6; ++i) client->Open(Head(worker.address()), FrameMessage("?"), true, 1 << 20);
  client->Flush();
  EXPECT_TRUE(worker.AwaitRequests(6));
  EXPECT_TRUE(AwaitMetric("sluice_proxy_connections", 0));
  EXPECT_TRUE(AwaitIdle());
}

// An unscheduled link cannot hold responses back, so the proxy ends calls that exceed the bound.
TEST_F(SlowClientTest, AnUnscheduledLinkEndsWhatItCannotHold) {
  options_.proxy.max_held_bytes = 1 << 20;
  Start(std::chrono::hours(1), {.policy = SchedulePolicy::kUnscheduled});
  const auto client = NewClient({.stream_window_bytes = 0});
  const auto calls = Ask(*client, 0);
  const auto ended = [&] {
    return std::count_if(calls.begin(), calls.end(), [](const auto* call) { return call->closed.has_value(); });
  };
  EXPECT_TRUE(Await({client.get()}, [&] { return ended() >= kCalls - 1; }));
  EXPECT_LE(Metric("sluice_proxy_held_bytes"), 3 << 20);
  ExpectServes(worker_.address(), "small");
}

TEST_F(SlowClientTest, AClientThatTakesALittleNowAndThenIsNotStuck) {
  Start(milliseconds(400));
  const auto client = NewClient({.stream_window_bytes = 0});
  client->set_grants(false);
  const auto& call = client->Open(Head(worker_.address()), FrameMessage("large"));
  // Run longer than the stall timeout, with several checks for stuck calls.
  const auto began = std::chrono::steady_clock::now();
  int grants = 0;
  EXPECT_TRUE(Await({client.get()}, [&] {
    const auto passed = std::chrono::steady_clock::now() - began;
    if (passed > grants * milliseconds(50)) {
      client->session().Grant(call.id, 1000);
      ++grants;
    }
    return passed > std::chrono::milliseconds(2500) || call.closed.has_value();
  }));
  EXPECT_FALSE(call.closed.has_value());
  EXPECT_EQ(Metric("sluice_proxy_stuck_calls_total"), 0);
}

}  // namespace
}  // namespace sluice::testing
