#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/link/test_http2_connection.h"
#include "tests/unit/proxy/proxy_loop_fixture.h"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;
using Stream = Http2Peer::Stream;

// Calls to a name with several addresses, of which some fail.
class RetriedCallTest : public ProxyLoopTest {
 protected:
  static constexpr char kName[] = "name.test:1";

  // Each worker handles its calls by one of the handlers.
  void Start(const ProxyOptions& options, const std::vector<TestHttp2Server::Handler>& handlers) {
    StartProxy(options);
    std::vector<std::string> addresses;
    for (const TestHttp2Server::Handler& handler : handlers) {
      workers_.push_back(std::make_unique<TestHttp2Server>(handler));
      addresses.push_back(workers_.back()->address());
    }
    SetName(kName, addresses);
    client_ = NewClient();
  }
  std::string Ask(const HeaderList& more = {}) {
    const Stream& call = client_->Open(Head(kName, more), FrameMessage("?"));
    EXPECT_TRUE(Await({client_.get()}, [&] { return call.closed.has_value(); }));
    return call.status() == "0" ? "OK" : call.status() + " " + call.Field("grpc-message");
  }
  int Requests() const {
    int requests = 0;
    for (const auto& worker : workers_) requests += worker->counts().requests;
    return requests;
  }
  static void Fail(TestHttp2Server::Call& call) { call.Fail(absl::UnavailableError("not now")); }

  std::vector<std::unique_ptr<TestHttp2Server>> workers_;
  std::unique_ptr<Http2Peer> client_;
};

TEST_F(RetriedCallTest, ByDefaultTheClientReceivesTheFailure) {
  Start({}, {Fail, Fail});
  EXPECT_EQ(Ask(), "14 not now");
  EXPECT_EQ(Requests(), 1);
}

TEST_F(RetriedCallTest, AnotherAddressAnswersInstead) {
  Start({.max_attempts = 2}, {Fail, [](TestHttp2Server::Call& call) { call.Answer(call.request()); }});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Ask(), "OK");
  EXPECT_GE(workers_[0]->counts().requests, 1);
  EXPECT_EQ(SumOf(registry_, "sluice_call_retries_total", "", ""), workers_[0]->counts().requests);
}

TEST_F(RetriedCallTest, TheWorkerLearnsOfThePreviousAttempts) {
  Metadata seen;
  Start({}, {Fail, [&seen](TestHttp2Server::Call& call) {
               seen = call.head().metadata;
               call.Answer("!");
             }});
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Ask({{"sluice-max-attempts", "2"}, {"x-a", "b"}}), "OK");
    if (workers_[0]->counts().requests == 1) break;
  }
  const auto expected = std::pair<std::string, std::string>("grpc-previous-rpc-attempts", "1");
  EXPECT_EQ(workers_[0]->counts().requests, 1);
  EXPECT_THAT(seen,
              ::testing::UnorderedElementsAre(std::pair<std::string, std::string>("x-a", "b"), ::testing::_, expected))
      << "and of via, but not of sluice-max-attempts";
}

TEST_F(RetriedCallTest, NoMoreThanTheMaximum) {
  Start({.max_attempts = 3}, {Fail, Fail, Fail, Fail});
  EXPECT_EQ(Ask(), "14 not now");
  EXPECT_EQ(Requests(), 3);
  EXPECT_EQ(Ask({{"sluice-max-attempts", "1"}}), "14 not now");
  EXPECT_EQ(Requests(), 4);
  EXPECT_THAT(Ask({{"sluice-max-attempts", "6"}}), StartsWith("3 "));
}

TEST_F(RetriedCallTest, EachAddressIsTriedOnce) {
  Start({.max_attempts = 5}, {Fail, Fail});
  EXPECT_EQ(Ask(), "14 not now");
  EXPECT_EQ(Requests(), 2);
}

TEST_F(RetriedCallTest, AConnectionThatIsLostIsAFailure) {
  const auto breaks = [](TestHttp2Server::Call& call) { call.connection().Break(); };
  Start({.max_attempts = 2}, {breaks, [](TestHttp2Server::Call& call) { call.Answer("!"); }});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Ask(), "OK");
}

TEST_F(RetriedCallTest, OtherFailuresAndResponsesThatHaveBegunAreNotRetried) {
  int next = 0;
  const TestHttp2Server::Handler handler = [&next](TestHttp2Server::Call& call) {
    switch (next++) {
      case 0:
        return call.Fail(absl::InternalError("a bad disk"));
      case 1:
        return call.Fail(absl::UnavailableError("later"), "", {{"grpc-retry-pushback-ms", "100"}});
      default:
        call.SendHead();
        call.SendTrailers(absl::UnavailableError("in the middle"));
    }
  };
  Start({.max_attempts = 2}, {handler, handler});
  EXPECT_EQ(Ask(), "13 a bad disk");
  EXPECT_EQ(Ask(), "14 later") << "the client decides";
  EXPECT_EQ(Ask(), "14 in the middle");
  EXPECT_EQ(next, 3);
}

// gRFC A6: retries stop when half of the tokens are used up.
TEST_F(RetriedCallTest, WhileManyFailNoneIsRetried) {
  Start({.max_attempts = 2}, {Fail, Fail});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Ask(), "14 not now");
  EXPECT_EQ(Requests(), 22) << "the first two calls take four of ten tokens";
}

}  // namespace
}  // namespace sluice::testing
