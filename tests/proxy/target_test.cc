#include "lib/proxy/target.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lib/link/asio_listener.h"
#include "lib/proxy/proxy_core.h"
#include "tests/link/test_listener.h"
#include "tests/proxy/names_executor.h"
#include "tests/proxy/proxy_fixture.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;
using Stream = Http2Peer::Stream;

// A proxy whose workers are behind names of the test.
class TargetTest : public ProxyTest {
 protected:
  void StartProxy(ProxyOptions options = {}) {
    executor_.Await([&] {
      core_ = std::make_unique<LinkCore>(names_, *LinkSchedule::Create(Ample()), metrics_);
      proxy_ = std::make_unique<ProxyCore>(*core_, *TargetPolicy::Create({std::string("127.0.0.0/8"), "::1"}), nullptr,
                                           options, proxy_metrics_);
      auto listener = AsioListener::Listen(executor_, "127.0.0.1:0", {}, [this](const AcceptedConnection& connection) {
        proxy_->Accept({.route = "", .local = true, .peer = connection.peer}, connection.start);
      });
      ASSERT_TRUE(listener.ok()) << listener.status();
      listener_ = *std::move(listener);
    });
  }
  void TearDown() override {
    executor_.Await([&] {
      listener_.reset();
      proxy_.reset();
      core_.reset();
    });
  }

  std::unique_ptr<Http2Peer> NewClient() {
    auto client = std::make_unique<Http2Peer>(ConnectTo(listener_->address()));
    client->Flush();
    return client;
  }
  void SetName(const std::string& name, const NamesExecutor::Addresses& addresses) {
    executor_.Await([&] { names_.SetName(name, addresses); });
  }
  size_t OpenQuestions(const std::string& name) {
    size_t questions = 0;
    executor_.Await([&] { questions = names_.open_questions(name); });
    return questions;
  }
  std::vector<std::string> ConnectedTo() {
    std::vector<std::string> addresses;
    executor_.Await([&] { addresses = names_.connected_to(); });
    return addresses;
  }
  // One call after the other: "OK", or the code with its message.
  std::string Call(Http2Peer& client, const std::string& target) {
    const Stream& call = client.Open(Head(target), FrameMessage("?"));
    EXPECT_TRUE(Await({&client}, [&] { return call.closed.has_value(); }));
    return call.status() == "0" ? "OK" : absl::StrCat(call.status(), " ", call.Field("grpc-message"));
  }

  prometheus::Registry registry_;
  AggregatorMetrics metrics_{registry_};
  ProxyMetrics proxy_metrics_{registry_};
  AsioExecutor executor_;
  // For the link's thread.
  NamesExecutor names_{executor_};
  std::unique_ptr<LinkCore> core_;
  std::unique_ptr<ProxyCore> proxy_;
  std::unique_ptr<AsioListener> listener_;
};

// --- Look-ups.

TEST_F(TargetTest, ALookUpThatNobodyWaitsForEnds) {
  StartProxy();
  TestHttp2Server worker(Says("!"));
  const auto client = NewClient();
  const Stream& first = client->Open(Head("slow.test:1"), FrameMessage("?"));
  const Stream& second = client->Open(Head("slow.test:1"), FrameMessage("?"));
  client->Flush();
  ASSERT_TRUE(Eventually([&] { return OpenQuestions("slow.test:1") == 1; })) << "one for both";
  client->session().Reset(first.id, Http2Error::kCancel);
  EXPECT_EQ(Call(*client, "127.0.0.1:1").substr(0, 2), "14") << "the reset is there";
  EXPECT_EQ(OpenQuestions("slow.test:1"), 1U);
  client->session().Reset(second.id, Http2Error::kCancel);
  client->Flush();
  EXPECT_TRUE(Eventually([&] { return OpenQuestions("slow.test:1") == 0; }));

  const Stream& third = client->Open(Head("slow.test:1"), FrameMessage("?"));
  client->Flush();
  ASSERT_TRUE(Eventually([&] { return OpenQuestions("slow.test:1") == 1; })) << "another one";
  SetName("slow.test:1", std::vector<std::string>{worker.address()});
  EXPECT_TRUE(Await({client.get()}, [&] { return third.closed.has_value(); }));
  EXPECT_EQ(third.status(), "0");
}

TEST_F(TargetTest, ALookUpEndsWithTheTunnelThatWaitsForIt) {
  StartProxy();
  {
    TestSocket socket = ConnectTo(listener_->address());
    socket.Send("CONNECT slow.test:1 HTTP/1.1\r\nHost: a\r\n\r\n");
    ASSERT_TRUE(Eventually([&] { return OpenQuestions("slow.test:1") == 1; }));
  }
  EXPECT_TRUE(Eventually([&] { return OpenQuestions("slow.test:1") == 0; }));
}

// --- Room for targets.

TEST_F(TargetTest, NamesThatLeadNowhereMakeRoomForOthers) {
  StartProxy({.max_targets = 3});
  TestHttp2Server worker(Says("!"));
  const auto client = NewClient();
  for (int i = 0; i < 10; ++i) {
    const std::string name = absl::StrCat("junk-", i, ".test:1");
    SetName(name, absl::NotFoundError("no such name"));
    EXPECT_EQ(Call(*client, name).substr(0, 2), "14");
  }
  EXPECT_EQ(Call(*client, AddressOfNobody().text).substr(0, 2), "14");
  EXPECT_EQ(Call(*client, worker.address()), "OK");
}

TEST_F(TargetTest, TargetsInUseMakeNoRoom) {
  StartProxy({.max_targets = 2});
  TestHttp2Server worker(Says("!"));
  const auto client = NewClient();
  EXPECT_EQ(Call(*client, worker.address()), "OK");
  const Stream& waiting = client->Open(Head("slow.test:1"), FrameMessage("?"));
  EXPECT_THAT(Call(*client, "127.0.0.1:1"), HasSubstr("there are 2 targets in use, and max_targets is 2"));
  EXPECT_FALSE(waiting.closed.has_value());
  EXPECT_EQ(Call(*client, worker.address()), "OK");
  SetName("slow.test:1", absl::NotFoundError("no such name"));
  EXPECT_TRUE(Await({client.get()}, [&] { return waiting.closed.has_value(); }));
  executor_.Await([&] { names_.PutForward(std::chrono::seconds(1)); });
  EXPECT_EQ(Call(*client, "127.0.0.1:1").substr(0, 2), "14") << "there is room again";
  EXPECT_EQ(worker.counts().connections, 1) << "that of a worker stays";
}

}  // namespace
}  // namespace sluice::testing
