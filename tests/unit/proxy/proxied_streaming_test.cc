// Calls with several request messages or a long request, through a proxy, to a worker that receives them one by one.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/http2/raw_frames.h"
#include "tests/unit/link/test_http2_connection.h"
#include "tests/unit/proxy/peer_worker.h"
#include "tests/unit/proxy/proxy_fixture.h"

namespace sluice::testing {
namespace {

using Kind = StreamEnd::Kind;

HeaderList AnswerHead() {
  return {{":status", "200"}, {"content-type", "application/grpc"}};
}

class ProxiedStreamingTest : public ProxyTest {
 protected:
  void SetUp() override { StartProxy(); }

  // Returns the call at the worker, after it has arrived.
  static Http2Peer::Stream& AwaitCall(Http2Peer& client, PeerWorker& worker, size_t connection = 0, size_t index = 0) {
    EXPECT_TRUE(AwaitAt(worker, client, [&] {
      return worker.connections().size() > connection && worker.connections()[connection]->streams().size() > index &&
             !worker.connections()[connection]->streams()[index]->headers.empty();
    }));
    return *worker.connections()[connection]->streams()[index];
  }
  Http2Peer::Stream& AwaitCall(Http2Peer& client, size_t connection = 0, size_t index = 0) {
    return AwaitCall(client, worker_, connection, index);
  }
  static bool AwaitAt(PeerWorker& worker, Http2Peer& client, absl::FunctionRef<bool()> condition) {
    return Await({&client}, [&] {
      worker.Pump();
      return condition();
    });
  }
  bool AwaitHere(Http2Peer& client, absl::FunctionRef<bool()> condition) { return AwaitAt(worker_, client, condition); }
  // Returns the number of request bytes that a client has sent when the proxy stops reading. The proxy has stopped if
  // it reads nothing while twenty other calls complete.
  size_t BytesThatWereTaken(Http2Peer& client, const Http2Peer::Stream& call, size_t request_bytes) {
    size_t unsent = request_bytes;
    for (int calls = 0; calls < 20; ++calls) {
      ExpectServes(other_.address());
      client.Pump();
      const size_t now = client.session().unsent_bytes(call.id);
      if (std::exchange(unsent, now) != now) calls = 0;
    }
    return request_bytes - unsent;
  }

  PeerWorker worker_;
  TestHttp2Server other_{Says("!")};
};

constexpr size_t kLargeBytes = 100 << 20;

TEST_F(ProxiedStreamingTest, AnAnswerFollowsManyMessages) {
  const auto client = NewClient();
  auto& call = client->Open(Head(worker_.address()), FrameMessage("0"), /*end_stream=*/false);
  auto& served = AwaitCall(*client);
  std::string expected = FrameMessage("0");
  for (const size_t bytes : {1, 1000, 50'000, 200'000}) {
    const std::string message = FrameMessage(std::string(bytes, 'x'));
    expected += message;
    ASSERT_TRUE(client->session().SendData(call.id, message, false).ok());
    EXPECT_TRUE(AwaitHere(*client, [&] { return served.data.size() == expected.size(); })) << bytes;
  }
  EXPECT_FALSE(served.ended);
  ASSERT_TRUE(client->session().SendData(call.id, "", true).ok());
  EXPECT_TRUE(AwaitHere(*client, [&] { return served.ended; }));
  EXPECT_TRUE(served.data == expected);
  worker_.session().SendHeaders(served.id, AnswerHead(), false);
  ASSERT_TRUE(worker_.session().SendData(served.id, FrameMessage("sum"), false).ok());
  worker_.session().SendHeaders(served.id, {{"grpc-status", "0"}}, true);
  EXPECT_TRUE(AwaitHere(*client, [&] { return call.closed.has_value(); }));
  EXPECT_EQ(call.data, FrameMessage("sum"));
  EXPECT_EQ(call.status(), "0");
}

TEST_F(ProxiedStreamingTest, MessagesMayAlternate) {
  const auto client = NewClient();
  auto& call = client->Open(Head(worker_.address()), "", /*end_stream=*/false);
  auto& served = AwaitCall(*client);
  worker_.session().SendHeaders(served.id, AnswerHead(), false);
  std::string asked;
  std::string answered;
  for (int i = 0; i < 10; ++i) {
    asked += FrameMessage(std::string(3000, 'a'));
    ASSERT_TRUE(client->session().SendData(call.id, FrameMessage(std::string(3000, 'a')), false).ok());
    EXPECT_TRUE(AwaitHere(*client, [&] { return served.data == asked; }));
    answered += FrameMessage(std::string(7000, 'b'));
    ASSERT_TRUE(worker_.session().SendData(served.id, FrameMessage(std::string(7000, 'b')), false).ok());
    EXPECT_TRUE(AwaitHere(*client, [&] { return call.data == answered; }));
  }
  ASSERT_TRUE(client->session().SendData(call.id, "", true).ok());
  EXPECT_TRUE(AwaitHere(*client, [&] { return served.ended; }));
  worker_.session().SendHeaders(served.id, {{"grpc-status", "0"}}, true);
  EXPECT_TRUE(AwaitHere(*client, [&] { return call.closed.has_value(); }));
  EXPECT_TRUE(call.is(Kind::kComplete));
}

TEST_F(ProxiedStreamingTest, AnAnswerBeforeTheEndOfTheRequestEndsIt) {
  const auto client = NewClient();
  auto& call = client->Open(Head(worker_.address()), FrameMessage("0"), /*end_stream=*/false);
  auto& served = AwaitCall(*client);
  HeaderList answer = AnswerHead();
  answer.push_back({"grpc-status", "9"});
  worker_.session().SendHeaders(served.id, answer, true);
  EXPECT_TRUE(AwaitHere(*client, [&] { return call.closed.has_value() && served.closed.has_value(); }));
  EXPECT_EQ(call.status(), "9");
  EXPECT_TRUE(call.is(Kind::kReset, Http2Error::kNoError));
  EXPECT_TRUE(AwaitIdle());
}

TEST_F(ProxiedStreamingTest, AWorkerThatDoesNotReadStopsTheClient) {
  const auto client = NewClient({.max_unsent_bytes_per_stream = 16 << 20});
  auto& call = client->Open(Head(worker_.address()), "", /*end_stream=*/false);
  auto& served = AwaitCall(*client);
  worker_.connections().front()->set_grants(false);
  ASSERT_TRUE(client->session().SendData(call.id, std::string(8 << 20, 'x'), false).ok());
  EXPECT_TRUE(AwaitHere(*client, [&] { return served.data.size() == 65535; }));
  TestHttp2Server other(Says("!"));
  for (int i = 0; i < 10; ++i) {
    ExpectServes(other.address());
    client->Pump();
    worker_.Pump();
  }
  // The worker has one window, and the proxy keeps another window for it.
  EXPECT_GE(client->session().unsent_bytes(call.id), static_cast<size_t>(7 << 20));
  worker_.connections().front()->set_grants(true);
  worker_.session().Grant(served.id, 65535);
  EXPECT_TRUE(AwaitHere(*client, [&] { return served.data.size() == 8 << 20; }));
}

// Bytes that arrive before the worker is known count, too.
TEST_F(ProxiedStreamingTest, OfALargeRequestTheProxyHoldsTheWindowOfItsStream) {
  PeerWorker narrow(1000);
  const auto client = NewClient({.max_unsent_bytes_per_stream = kLargeBytes});
  const auto& call = client->Open(Head(narrow.address()), "", /*end_stream=*/false);
  auto& served = AwaitCall(*client, narrow);
  narrow.connections().front()->set_grants(false);
  ASSERT_TRUE(client->session().SendData(call.id, std::string(kLargeBytes, 'x'), true).ok());
  EXPECT_TRUE(AwaitAt(narrow, *client, [&] { return served.data.size() == 1000; }));
  EXPECT_EQ(BytesThatWereTaken(*client, call, kLargeBytes), 65535U);
  // Each byte that the worker reads lets the client send one more byte, after all kept bytes have left.
  narrow.session().Grant(served.id, 65535 - 1000);
  EXPECT_TRUE(AwaitAt(narrow, *client, [&] { return served.data.size() == 65535; }));
  EXPECT_EQ(BytesThatWereTaken(*client, call, kLargeBytes), 2 * 65535U);
}

// The HTTP/2 window of the worker is wide open, so that only its socket holds the proxy back.
TEST_F(ProxiedStreamingTest, OfALargeRequestToAWorkerWhoseSocketIsNotReadTheProxyHoldsLittle) {
  PeerWorker wide(1u << 30);
  const auto client = NewClient({.max_unsent_bytes_per_stream = kLargeBytes});
  auto& call = client->Open(Head(wide.address()), "", /*end_stream=*/false);
  auto& served = AwaitCall(*client, wide);
  ASSERT_TRUE(client->session().SendData(call.id, std::string(kLargeBytes, 'x'), true).ok());
  // Includes the kernel buffers of two TCP sockets on loopback: net.ipv4.tcp_rmem and tcp_wmem, 6 and 4 MB each.
  EXPECT_LT(BytesThatWereTaken(*client, call, kLargeBytes), 24U << 20);
  EXPECT_TRUE(AwaitAt(wide, *client, [&] { return served.ended; }));
  EXPECT_EQ(served.data.size(), kLargeBytes);
  EXPECT_EQ(served.data.find_first_not_of('x'), std::string::npos);
}

// The request is sent again on the next connection. The client continues to send, because it receives no error.
TEST_F(ProxiedStreamingTest, ARequestThatGrowsWhileItWaitsToBeSentAgainStaysWhole) {
  const auto client = NewClient();
  std::string request(60'000, 'a');
  auto& call = client->Open(Head(worker_.address()), request, /*end_stream=*/false);
  auto& served = AwaitCall(*client);
  EXPECT_TRUE(AwaitHere(*client, [&] { return served.data.size() == 60'000; }));
  // The client has its window back.
  ASSERT_TRUE(client->session().SendData(call.id, "b", false).ok());
  EXPECT_TRUE(AwaitHere(*client, [&] { return served.data.size() == 60'001; }));
  worker_.Say(raw::GoAway(0));
  EXPECT_TRUE(AwaitHere(*client, [&] { return worker_.connections()[0]->over(); }));
  ASSERT_TRUE(client->session().SendData(call.id, std::string(60'000, 'c'), true).ok());
  auto& again = AwaitCall(*client, 1);
  EXPECT_TRUE(AwaitHere(*client, [&] { return again.ended; }));
  request += "b" + std::string(60'000, 'c');
  EXPECT_EQ(again.data.size(), request.size());
  EXPECT_TRUE(again.data == request);
  EXPECT_FALSE(call.closed.has_value());
}

TEST_F(ProxiedStreamingTest, ALargeRequestThatTheWorkerRefusesIsForTheClientToSendAgain) {
  const auto client = NewClient();
  auto& call = client->Open(Head(worker_.address()), std::string(50'000, 'a'), /*end_stream=*/false);
  auto& served = AwaitCall(*client);
  EXPECT_TRUE(AwaitHere(*client, [&] { return served.data.size() == 50'000; }));
  ASSERT_TRUE(client->session().SendData(call.id, std::string(50'000, 'b'), false).ok());
  EXPECT_TRUE(AwaitHere(*client, [&] { return served.data.size() == 100'000; }));
  worker_.session().Reset(served.id, Http2Error::kRefusedStream);
  EXPECT_TRUE(AwaitHere(*client, [&] { return call.closed.has_value(); }));
  EXPECT_TRUE(call.is(Kind::kUnhandled, Http2Error::kRefusedStream));
  EXPECT_TRUE(AwaitIdle());
}

// A proxy that holds 16 windows of requests. One worker reads nothing, and calls send it the maximum number of bytes.
class ProxiedUploadsTest : public ProxiedStreamingTest {
 protected:
  void SetUp() override {
    options_.proxy.max_held_bytes = kHeldBytes;
    options_.proxy.max_calls = kHeldBytes / kShareBytes;
    ProxiedStreamingTest::SetUp();
    client_ = NewClient({.max_unsent_bytes_per_stream = kHeldBytes});
    for (int i = 0; i < kUploads; ++i) {
      uploads_.push_back(&client_->Open(Head(hung_.address()), std::string(100'000, 'x'), /*end_stream=*/false));
    }
    EXPECT_TRUE(AwaitAt(hung_, *client_, [&] { return Metric("sluice_proxy_held_request_bytes") > kFullBytes; }));
  }

  static constexpr int kUploads = 40;
  static constexpr size_t kWindowBytes = 65535;
  static constexpr size_t kHeldBytes = 16 * (kWindowBytes + 200);  // with their headers
  static constexpr size_t kShareBytes = 16'000;
  // If more bytes are held, a request of the test's own calls does not fit.
  static constexpr size_t kFullBytes = kHeldBytes - kShareBytes;

  PeerWorker hung_{0};
  std::unique_ptr<Http2Peer> client_;
  std::vector<const Http2Peer::Stream*> uploads_;
};

TEST_F(ProxiedUploadsTest, ThoseThatDoNotFitEnd) {
  const auto ended = [&] {
    return std::count_if(uploads_.begin(), uploads_.end(), [](const auto* call) { return call->closed.has_value(); });
  };
  // The last uploads may end before the others have filled their windows.
  EXPECT_TRUE(AwaitAt(hung_, *client_, [&] {
    return ended() >= kUploads - 16 && Metric("sluice_proxy_held_request_bytes") > kFullBytes;
  }));
  EXPECT_LE(Metric("sluice_proxy_held_request_bytes"), kHeldBytes);
  for (const auto* call : uploads_) {
    if (!call->closed.has_value()) continue;
    EXPECT_EQ(call->status(), "8");
    EXPECT_THAT(call->Field("grpc-message"),
                ::testing::HasSubstr(absl::StrCat("more than ", kHeldBytes, " bytes of such requests")));
  }
  hung_.Pump();
  client_.reset();
  EXPECT_TRUE(AwaitIdle());
}

TEST_F(ProxiedUploadsTest, SmallRequestsToOtherWorkersGoOn) {
  for (int i = 0; i < 20; ++i) ExpectServes(other_.address(), std::string(kShareBytes - 500, '?'));
}

// The proxy keeps none of it, not even to send it again.
TEST_F(ProxiedUploadsTest, AnUploadThatItsWorkerTakesGoesOn) {
  const auto client = NewClient({.max_unsent_bytes_per_stream = kHeldBytes});
  auto& call = client->Open(Head(worker_.address()), "", /*end_stream=*/false);
  auto& served = AwaitCall(*client);
  ASSERT_TRUE(client->session().SendData(call.id, std::string(500'000, 'x'), true).ok());
  EXPECT_TRUE(AwaitHere(*client, [&] { return served.ended; }));
  EXPECT_EQ(served.data.size(), 500'000U);
  EXPECT_FALSE(call.closed.has_value());
}

// HPACK compresses headers well on the wire, so a client may have many of them.
TEST_F(ProxiedStreamingTest, HeadsAreHeldAsWell) {
  constexpr int64_t kHeadsBytes = 1 << 20;
  options_.proxy.max_held_bytes = kHeadsBytes;
  options_.proxy.max_calls = 64;  // 16 KiB each
  proxy_.reset();
  StartProxy();
  TestHttp2Server silent([](TestHttp2Server::Call&) {});
  const auto client = NewClient();
  const std::string large(30'000, 'x');
  double most = 0;
  int ended = 0;
  for (int i = 0; i < 60; ++i) {
    const auto& call = client->Open(Head(silent.address(), {{"x-large", large}}), FrameMessage("?"));
    ASSERT_TRUE(Await({client.get()},
                      [&] { return call.closed.has_value() || Metric("sluice_proxy_calls") == i + 1 - ended; }));
    if (call.closed.has_value()) {
      EXPECT_EQ(call.status(), "8");
      ++ended;
    }
    most = std::max(most, Metric("sluice_proxy_held_request_bytes"));
  }
  EXPECT_GT(most, kHeadsBytes / 2);
  EXPECT_LE(most, kHeadsBytes + large.size()) << "one head may be seen before others go for it";
}

// The headers of a call are held even without any DATA after them.
TEST_F(ProxiedStreamingTest, HeadsOfRequestsThatDoNotGoOnAreHeldAsWell) {
  constexpr int64_t kHeadsBytes = 1 << 20;
  options_.proxy.max_held_bytes = kHeadsBytes;
  options_.proxy.max_calls = 64;
  proxy_.reset();
  StartProxy();
  const auto client = NewClient();
  const std::string large(30'000, 'x');
  std::vector<const Http2Peer::Stream*> calls;
  for (int i = 0; i < 60; ++i) {
    // The test does not pump the worker, so no call begins.
    calls.push_back(&client->Open(Head(worker_.address(), {{"x-large", large}}), "", /*end_stream=*/false));
  }
  const auto ended = [&] {
    return std::count_if(calls.begin(), calls.end(), [](const auto* call) { return call->closed.has_value(); });
  };
  EXPECT_TRUE(Await({client.get()}, [&] { return ended() >= 60 - static_cast<int>(kHeadsBytes / large.size()); }));
  EXPECT_LE(Metric("sluice_proxy_held_request_bytes"), kHeadsBytes);
  for (const auto* call : calls) EXPECT_TRUE(!call->closed.has_value() || call->status() == "8");
}

}  // namespace
}  // namespace sluice::testing
