#include "lib/proxy/proxied_call.h"

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "lib/grpc_wire/response_head.h"
#include "tests/notification.h"
#include "tests/unit/grpc_wire/test_messages.h"
#include "tests/unit/http2/raw_frames.h"
#include "tests/unit/link/test_http2_connection.h"
#include "tests/unit/net/test_listener.h"
#include "tests/unit/proxy/proxy_fixture.h"

namespace sluice::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;
using Kind = StreamEnd::Kind;

class ProxiedCallTest : public ProxyTest {
 protected:
  void SetUp() override { StartProxy(); }

  // Waits for the end of the call; fails if it does not end in time.
  static void AwaitEnd(Http2Peer& client, const Http2Peer::Stream& call) {
    EXPECT_TRUE(Await({&client}, [&] { return call.closed.has_value(); }));
  }
};

TEST_F(ProxiedCallTest, AUnaryCallPassesAsItIs) {
  ReceivedRequestHead head;
  std::string request;
  TestHttp2Server worker([&](TestHttp2Server::Call& call) {
    head = call.head();
    request = call.request();
    call.SendHead({{"x-head", "1"}, {"x-bytes-bin", std::string("\0\xff", 2)}});
    call.SendData(FrameMessage("answer"));
    call.SendTrailers(absl::OkStatus(), "", {{"x-trailer", "2"}});
  });
  const auto client = NewClient();
  const auto& call =
      client->Open(Head(worker.address(), {{"x-key", "value"}, {"x-bytes-bin", "AP8"}, {"user-agent", "grpc-test/1"}}),
                   FrameMessage("question"));
  AwaitEnd(*client, call);
  EXPECT_TRUE(call.is(Kind::kComplete));
  EXPECT_EQ(call.data, FrameMessage("answer"));
  EXPECT_THAT(call.headers, Contains(HeaderField{"x-head", "1"}));
  EXPECT_THAT(call.headers, Contains(HeaderField{"x-bytes-bin", "AP8"}));
  EXPECT_THAT(call.trailers, ::testing::ElementsAre(HeaderField{"grpc-status", "0"}, HeaderField{"x-trailer", "2"}));
  ASSERT_TRUE(worker.AwaitRequests(1));
  EXPECT_EQ(request, "question");
  EXPECT_EQ(head.path, "/test.Answers/Get");
  EXPECT_EQ(head.authority, worker.address());
  EXPECT_EQ(head.user_agent, "grpc-test/1");
  EXPECT_THAT(head.metadata,
              ::testing::ElementsAre(Pair("via", ::testing::MatchesRegex("2 sluice-[0-9a-f]{12}")),
                                     Pair("x-key", "value"), Pair("x-bytes-bin", std::string("\0\xff", 2))));
  EXPECT_EQ(head.timeout, absl::InfiniteDuration());
  EXPECT_TRUE(AwaitIdle());
  EXPECT_EQ(Metric("sluice_proxy_calls_total", "code", "OK"), 1);
}

// 99999999 hours are 11,415 years.
TEST_F(ProxiedCallTest, TheLongestDeadlineIsNotInThePast) {
  TestHttp2Server worker(Says("!"));
  const auto client = NewClient();
  const auto& call = client->Open(Head(worker.address(), {{"grpc-timeout", "99999999H"}}), FrameMessage("?"));
  AwaitEnd(*client, call);
  EXPECT_EQ(call.status(), "0");
}

TEST_F(ProxiedCallTest, AnErrorComesAsTrailersAlone) {
  TestHttp2Server worker([](TestHttp2Server::Call& call) {
    call.Fail(absl::NotFoundError("no such % thing"), "details", {{"x-why", "gone"}});
  });
  const auto client = NewClient();
  const auto& call = client->Open(Head(worker.address()), FrameMessage("?"));
  AwaitEnd(*client, call);
  EXPECT_TRUE(call.is(Kind::kComplete));
  EXPECT_TRUE(call.trailers.empty());
  EXPECT_EQ(call.status(), "5");
  EXPECT_EQ(call.Field("grpc-message"), "no such %25 thing");
  EXPECT_EQ(call.Field("grpc-status-details-bin"), "ZGV0YWlscw");
  EXPECT_EQ(call.Field("x-why"), "gone");
  EXPECT_TRUE(AwaitIdle());
  EXPECT_EQ(Metric("sluice_proxy_calls_total", "code", "NOT_FOUND"), 1);
}

TEST_F(ProxiedCallTest, MessagesOfAStreamComeOneByOne) {
  TestHttp2Server worker([](TestHttp2Server::Call& call) { call.SendHead(); });
  const auto client = NewClient();
  const auto& call = client->Open(Head(worker.address()), FrameMessage("?"));
  ASSERT_TRUE(worker.AwaitRequests(1));
  std::string expected;
  for (const size_t bytes : {0, 1, 5, 100, 20000, 300000}) {
    const std::string message = FrameMessage(std::string(bytes, 'x'));
    expected += message;
    worker.Run([&] { worker.calls().front()->SendData(message); });
    EXPECT_TRUE(Await({client.get()}, [&] { return call.data.size() == expected.size(); })) << bytes;
  }
  EXPECT_FALSE(call.ended);
  worker.Run([&] { worker.calls().front()->SendTrailers(); });
  AwaitEnd(*client, call);
  EXPECT_TRUE(call.data == expected);
  EXPECT_TRUE(call.is(Kind::kComplete));
}

TEST_F(ProxiedCallTest, CompressedMessagesAreNotTouched) {
  const std::string answer = CompressedMessage(std::string(10000, 'y'));
  TestHttp2Server worker([&](TestHttp2Server::Call& call) {
    EXPECT_EQ(call.head().encoding, "gzip");
    EXPECT_EQ(call.head().accept_encoding, "identity,gzip,br");
    EXPECT_EQ(call.request(), std::string(10000, 'x'));
    call.SendHead({{"grpc-encoding", "gzip"}});
    call.SendData(answer);
    call.SendTrailers();
  });
  const auto client = NewClient();
  const auto& call =
      client->Open(Head(worker.address(), {{"grpc-encoding", "gzip"}, {"grpc-accept-encoding", "identity,gzip,br"}}),
                   CompressedMessage(std::string(10000, 'x')));
  AwaitEnd(*client, call);
  EXPECT_EQ(call.Field("grpc-encoding"), "gzip");
  EXPECT_TRUE(call.data == answer);
}

TEST_F(ProxiedCallTest, ALargeRequestComesWhole) {
  std::string request;
  TestHttp2Server worker([&](TestHttp2Server::Call& call) {
    request = call.request();
    call.Answer("!");
  });
  std::string message(3 << 20, 'x');
  for (size_t i = 0; i < message.size(); i += 1000) message[i] = static_cast<char>(i / 1000);
  const auto client = NewClient({.max_unsent_bytes_per_stream = 4 << 20});
  const auto& call = client->Open(Head(worker.address()), FrameMessage(message));
  AwaitEnd(*client, call);
  EXPECT_EQ(call.status(), "0");
  EXPECT_TRUE(request == message);
}

// --- Resets.

TEST_F(ProxiedCallTest, AResetOfTheWorkerPassesWithItsCode) {
  for (const Http2Error error : {Http2Error::kEnhanceYourCalm, Http2Error::kInternalError, Http2Error::kCancel}) {
    TestHttp2Server worker([&](TestHttp2Server::Call& call) { call.Reset(error); });
    const auto client = NewClient();
    const auto& call = client->Open(Head(worker.address()), FrameMessage("?"));
    AwaitEnd(*client, call);
    EXPECT_TRUE(call.is(Kind::kReset, error));
    EXPECT_TRUE(call.headers.empty());
  }
  EXPECT_TRUE(AwaitIdle());
}

TEST_F(ProxiedCallTest, AResetOfTheClientReachesTheWorkerWithACodeThatSpeaksOfTheCall) {
  const std::pair<Http2Error, Http2Error> cases[] = {{Http2Error::kCancel, Http2Error::kCancel},
                                                     {Http2Error::kInternalError, Http2Error::kInternalError},
                                                     {Http2Error::kEnhanceYourCalm, Http2Error::kEnhanceYourCalm},
                                                     {Http2Error::kProtocolError, Http2Error::kCancel},
                                                     {Http2Error::kFlowControlError, Http2Error::kCancel},
                                                     {Http2Error::kRefusedStream, Http2Error::kCancel},
                                                     {Http2Error::kNoError, Http2Error::kCancel}};
  double cancelled = 0;
  for (const auto& [said, heard] : cases) {
    Notification reset;
    StreamEnd how;
    TestHttp2Server worker([&](TestHttp2Server::Call& call) {
      call.SendHead();
      call.on_closed = [&](StreamEnd end) {
        how = end;
        reset.Notify();
      };
    });
    const auto client = NewClient();
    const auto& call = client->Open(Head(worker.address()), FrameMessage("?"));
    EXPECT_TRUE(Await({client.get()}, [&] { return !call.headers.empty(); }));
    client->session().Reset(call.id, said);
    client->Flush();
    ASSERT_TRUE(reset.Await());
    EXPECT_EQ(how.kind, Kind::kReset);
    EXPECT_EQ(how.error, heard);
    EXPECT_TRUE(AwaitIdle());
    EXPECT_EQ(Metric("sluice_proxy_calls_total", "code", "CANCELLED"), ++cancelled);
  }
}

TEST_F(ProxiedCallTest, AClientThatGoesCancelsItsCalls) {
  TestHttp2Server worker([](TestHttp2Server::Call&) {});
  auto client = NewClient();
  for (int i = 0; i < 5; ++i) client->Open(Head(worker.address()), FrameMessage("?"));
  ASSERT_TRUE(worker.AwaitRequests(5));
  client.reset();
  EXPECT_TRUE(worker.Await([](const auto& counts) { return counts.resets == 5; }));
  EXPECT_TRUE(AwaitIdle());
  EXPECT_TRUE(AwaitMetric("sluice_proxy_connections", 0));
}

TEST_F(ProxiedCallTest, ACallThatTheWorkerRefusesIsSentAgain) {
  std::atomic<int> asked = 0;
  TestHttp2Server worker([&](TestHttp2Server::Call& call) {
    if (++asked <= 2) return call.Reset(Http2Error::kRefusedStream);
    EXPECT_EQ(call.request(), "question");
    call.Answer("at last");
  });
  const auto client = NewClient();
  const auto& call = client->Open(Head(worker.address()), FrameMessage("question"));
  AwaitEnd(*client, call);
  EXPECT_EQ(call.data, FrameMessage("at last"));
  EXPECT_EQ(asked, 3);
}

TEST_F(ProxiedCallTest, AWorkerThatRefusesAlwaysRefusesTheClient) {
  TestHttp2Server worker([](TestHttp2Server::Call& call) { call.Reset(Http2Error::kRefusedStream); });
  const auto client = NewClient();
  const auto& call = client->Open(Head(worker.address()), FrameMessage("?"));
  AwaitEnd(*client, call);
  EXPECT_TRUE(call.is(Kind::kUnhandled, Http2Error::kRefusedStream)) << "which may send the call elsewhere";
  EXPECT_LE(worker.counts().requests, 4);
  EXPECT_TRUE(AwaitIdle());
}

// --- Workers that close.

TEST_F(ProxiedCallTest, AWorkerThatSaysGoawayKeepsItsCallsAndGetsNoNewOnesThere) {
  TestHttp2Server worker([](TestHttp2Server::Call& call) {
    if (call.request() == "first") return call.SendHead();
    call.Answer("second");
  });
  const auto client = NewClient();
  const auto& first = client->Open(Head(worker.address()), FrameMessage("first"));
  ASSERT_TRUE(worker.AwaitRequests(1));
  worker.Run([&] { worker.calls().front()->connection().session().GoAway(Http2Error::kNoError); });
  const auto& second = client->Open(Head(worker.address()), FrameMessage("second"));
  AwaitEnd(*client, second);
  EXPECT_EQ(second.data, FrameMessage("second"));
  EXPECT_EQ(worker.counts().connections, 2);
  worker.Run([&] {
    worker.calls().front()->SendData(FrameMessage("late"));
    worker.calls().front()->SendTrailers();
  });
  AwaitEnd(*client, first);
  EXPECT_EQ(first.data, FrameMessage("late"));
}

TEST_F(ProxiedCallTest, AWorkerThatDiesWithinItsAnswerIsUnavailable) {
  TestHttp2Server worker([](TestHttp2Server::Call& call) {
    call.SendHead();
    call.SendData(FrameMessage("begun"));
  });
  const auto client = NewClient();
  const auto& call = client->Open(Head(worker.address()), FrameMessage("?"));
  EXPECT_TRUE(Await({client.get()}, [&] { return call.data == FrameMessage("begun"); }));
  worker.Run([&] { worker.calls().front()->connection().Break(); });
  AwaitEnd(*client, call);
  EXPECT_TRUE(call.is(Kind::kComplete));
  EXPECT_EQ(call.status(), "14");
  EXPECT_TRUE(AwaitIdle());
}

TEST_F(ProxiedCallTest, AWorkerThatIsNotThereIsUnavailable) {
  const auto client = NewClient();
  const std::string nobody = AddressOfNobody().text;
  const auto& call = client->Open(Head(nobody), FrameMessage("?"));
  AwaitEnd(*client, call);
  EXPECT_EQ(call.status(), "14");
  EXPECT_THAT(call.Field("grpc-message"), HasSubstr(nobody));
  EXPECT_EQ(call.Field(":status"), "200");
}

TEST_F(ProxiedCallTest, OnlyAMethodThatItsWorkerKnowsHasASeriesOfItsOwn) {
  TestHttp2Server worker([](TestHttp2Server::Call& call) {
    if (call.path() == "/test.Answers/Get") return call.Fail(absl::NotFoundError("no such thing"), "", {});
    call.Fail(absl::UnimplementedError("no such method"), "", {});
  });
  const auto client = NewClient();
  const auto call = [&](const std::string& path, const std::string& target) {
    HeaderList headers = Head(target);
    for (HeaderField& field : headers) {
      if (field.name == ":path") field.value = path;
    }
    const auto& made = client->Open(headers, FrameMessage("?"));
    AwaitEnd(*client, made);
    EXPECT_THAT(made.status(), ::testing::Not("0"));
  };
  call("/junk/1", worker.address());
  call("/junk/2", AddressOfNobody().text);
  call("/test.Answers/Get", worker.address());
  EXPECT_TRUE(AwaitIdle());
  std::vector<std::string> methods;
  for (const auto& family : link_->registry().Collect()) {
    if (family.name != "sluice_proxy_call_seconds") continue;
    for (const auto& metric : family.metric) methods.push_back(metric.label.front().value);
  }
  EXPECT_THAT(methods, ::testing::UnorderedElementsAre("other", "/test.Answers/Get"));
}

// --- Requests that are not calls for a worker.

TEST_F(ProxiedCallTest, ATargetThatMayNotBeCalledIsDenied) {
  const auto client = NewClient();
  const auto& metadata = client->Open(Head("169.254.169.254:80"), FrameMessage("?"));
  const auto& zoned = client->Open(Head("[fd00:ec2::254%1]:80"), FrameMessage("?"));
  const auto& other = client->Open(Head("8.8.8.8:53"), FrameMessage("?"));
  const auto& itself = client->Open(Head(address()), FrameMessage("?"));
  const auto& none = client->Open(Head("no-port"), FrameMessage("?"));
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().streams() == 0; }));
  EXPECT_EQ(metadata.status(), "7");
  EXPECT_EQ(zoned.status(), "7");
  EXPECT_EQ(other.status(), "7");
  EXPECT_EQ(itself.status(), "7");
  EXPECT_EQ(none.status(), "3");
  EXPECT_TRUE(AwaitIdle());
  EXPECT_EQ(Metric("sluice_proxy_calls_total", "workers", "none"), 5);
}

TEST_F(ProxiedCallTest, ANameThatLeadsBackIsDenied) {
  const auto client = NewClient();
  const auto& call = client->Open(Head("localhost" + address().substr(address().rfind(':'))), FrameMessage("?"));
  AwaitEnd(*client, call);
  EXPECT_EQ(call.status(), "7");
  EXPECT_TRUE(AwaitIdle());
  EXPECT_EQ(Metric("sluice_proxy_calls_total"), 1);
}

TEST_F(ProxiedCallTest, WhatIsNoGrpcIsRefusedAsHttpSays) {
  const auto client = NewClient();
  const auto open = [&](const std::string& field, const std::string& value) -> const Http2Peer::Stream& {
    HeaderList headers = Head("127.0.0.1:1");
    for (HeaderField& one : headers) {
      if (one.name == field) one.value = value;
    }
    return client->Open(headers, "", field != "content-type");
  };
  const auto& type = open("content-type", "text/html");
  const auto& method = open(":method", "GET");
  EXPECT_TRUE(Await({client.get()}, [&] { return type.closed.has_value() && method.closed.has_value(); }));
  EXPECT_EQ(type.Field(":status"), "415");
  EXPECT_TRUE(type.is(Kind::kReset, Http2Error::kNoError)) << "the rest of the request is not needed";
  EXPECT_EQ(method.Field(":status"), "405");
  EXPECT_TRUE(AwaitIdle());
}

// See RFC 9113, section 8.2.2.
TEST_F(ProxiedCallTest, AFieldThatHttp2DoesNotAllowIsAProtocolError) {
  const auto client = NewClient();
  const auto& call = client->Open(Head("127.0.0.1:1", {{"keep-alive", "1"}}), FrameMessage("?"));
  AwaitEnd(*client, call);
  EXPECT_TRUE(call.is(Kind::kReset, Http2Error::kProtocolError));
  EXPECT_TRUE(AwaitIdle());
}

TEST_F(ProxiedCallTest, ARequestHasNoTrailers) {
  TestHttp2Server worker([](TestHttp2Server::Call&) {});
  const auto client = NewClient();
  const auto& call = client->Open(Head(worker.address()), FrameMessage("?"), /*end_stream=*/false);
  client->session().SendHeaders(call.id, {{"x-trailer", "1"}}, /*end_stream=*/true);
  AwaitEnd(*client, call);
  EXPECT_EQ(call.status(), "3");
  EXPECT_TRUE(AwaitIdle());
}

}  // namespace
}  // namespace sluice::testing
