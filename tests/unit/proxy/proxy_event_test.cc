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
  EXPECT_EQ(ConnectTo(address()).ReceiveAll(), "");
  const auto loopback = [](const std::string& rest) { return AllOf(StartsWith("127.0.0.1:"), EndsWith(rest)); };
  EXPECT_THAT(
      log.events(),
      ElementsAre(
          absl::StrCat("uid ", geteuid(), " : this user may not connect; add it to client_uids"),
          loopback(" 10.9.9.9:1: \"10.9.9.9:1\" is not among the workers that this proxy may call; add a pattern "
                   "for it to workers"),
          loopback(" : content-type \"text/plain\" is not application/grpc"), loopback(" : limits.calls is 1"),
          loopback(" : limits.connections is 1, and none of them is idle")));
  proxy_.reset();
}

}  // namespace
}  // namespace sluice::testing
