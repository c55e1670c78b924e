#include "lib/proxy/proxy_event.h"

#include <string>

#include <unistd.h>

#include "tests/unit/net/link_thread.h"
#include "tests/unit/proxy/proxy_fixture.h"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::StartsWith;

using ProxyEventTest = ProxyTest;

TEST_F(ProxyEventTest, ARequestThatHttp2DoesNotAllowIsReportedWithTheHeader) {
  EventLog log;
  options_.on_event = [&](const ProxyEvent& event) { log.Add(event.why); };
  StartProxy();
  const auto client = NewClient();
  const auto reset = [&](const HeaderList& headers) {
    const auto& call = client->Open(headers, FrameMessage("?"));
    EXPECT_TRUE(Await({client.get()}, [&] { return call.closed.has_value(); }));
    EXPECT_TRUE(call.is(StreamEnd::Kind::kReset, Http2Error::kProtocolError));
  };
  reset(Head("a b:1"));
  reset(Head("127.0.0.1:1", {{"keep-alive", "secret"}}));
  HeaderList without = Head("127.0.0.1:1");
  std::erase_if(without, [](const HeaderField& field) { return field.name == ":authority"; });
  reset(without);
  const std::string begin = "a call is reset with PROTOCOL_ERROR: ";
  EXPECT_THAT(log.events(), ElementsAre(begin + "HTTP/2 does not allow the header :authority \"a b:1\"",
                                        begin + "HTTP/2 does not allow the header keep-alive",
                                        begin + "a pseudo-header, such as :authority, is missing"));
  proxy_.reset();
}

TEST_F(ProxyEventTest, EachRefusalIsReportedWithItsClientAndTheReason) {
  EventLog log;
  options_.on_event = [&](const ProxyEvent& event) {
    EXPECT_EQ(event.kind, ProxyEvent::Kind::kRefused);
    log.Add(absl::StrCat(event.client, " ", event.target, ": ", event.why));
  };
  options_.listeners = {{.address = "127.0.0.1:0", .route = ""},
                        {.address = absl::StrCat("unix-abstract:sluice-event-test-", getpid()), .route = ""}};
  options_.client_users = {geteuid() + 1};
  options_.proxy.max_connections = 1;
  options_.proxy.max_calls = 1;
  StartProxy();
  TestHttp2Server worker([](TestHttp2Server::Call&) {});
  EXPECT_EQ(ConnectTo(address(1)).ReceiveAll(), "");
  const auto client = NewClient();
  EXPECT_EQ(StatusOf(*client, "10.9.9.9:1"), "7");
  HeaderList text = Head(worker.address());
  text.back().value = "text/plain";
  const auto& no_grpc = client->Open(text, "?");
  EXPECT_TRUE(Await({client.get()}, [&] { return no_grpc.closed.has_value(); }));
  client->Open(Head(worker.address()), FrameMessage("?"));
  const auto& second = client->Open(Head(worker.address()), FrameMessage("?"));
  EXPECT_TRUE(Await({client.get()}, [&] { return second.closed.has_value(); }));
  const auto third = NewClient();
  EXPECT_TRUE(Await({third.get()}, [&] { return third->over(); }));
  const std::string has_one =
      " is 1, and the clients of group \"127.0.0.1:0\" have 1 of them; no group has more for its weight";
  const auto loopback = [](const std::string& rest) { return AllOf(StartsWith("127.0.0.1:"), EndsWith(rest)); };
  EXPECT_THAT(
      log.events(),
      ElementsAre(
          absl::StrCat("uid ", geteuid(), " : this user may not connect; add it to client_uids"),
          loopback(" 10.9.9.9:1: \"10.9.9.9:1\" is not among the workers that this proxy may call; add a pattern "
                   "for it to workers"),
          loopback(" : content-type \"text/plain\" is not application/grpc"), loopback(" : limits.calls" + has_one),
          loopback(" : limits.connections" + has_one)));
  proxy_.reset();
}

}  // namespace
}  // namespace sluice::testing
