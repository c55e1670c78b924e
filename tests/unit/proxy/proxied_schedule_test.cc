// How the schedule of the link treats calls of a proxy.
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include "tests/unit/link/held_budget.h"
#include "tests/unit/proxy/proxy_fixture.h"

namespace sluice::testing {
namespace {

constexpr int64_t kBudget = 32 << 10;
// Room for a length prefix and a spare byte, which each stream has in addition to its grants: see ResponseFlow.
constexpr int64_t kRoom = 6;

class ProxiedScheduleTest : public ProxyTest {
 protected:
  int64_t Window(TestHttp2Server& worker, size_t call) {
    int64_t bytes = 0;
    worker.Run([&] { bytes = worker.calls()[call]->window_bytes(); });
    return bytes;
  }
  bool AwaitState(const std::function<bool(const ScheduleState&)>& condition) {
    return Eventually([&] { return condition(link_->State()); });
  }
};

TEST_F(ProxiedScheduleTest, AnAnswerThatIsReadyWaitsForTheBudget) {
  StartProxy(WithBudget(kBudget));
  TestHttp2Server worker([](TestHttp2Server::Call& call) { call.Answer(std::string(5000, 'x')); });
  ExpectServes(worker.address());
  HeldBudget held(*link_, kBudget - 3000);
  const auto client = NewClient();
  const auto& call = client->Open(Head(worker.address()), FrameMessage("?"));
  ASSERT_TRUE(worker.AwaitRequests(2));
  EXPECT_TRUE(AwaitState([](const ScheduleState& state) { return state.ungranted_calls == 1; }));
  for (int i = 0; i < 20; ++i) client->Pump();
  EXPECT_LE(call.data.size(), static_cast<size_t>(kRoom));
  EXPECT_LE(Window(worker, 1), kRoom);
  held.Release();
  EXPECT_TRUE(Await({client.get()}, [&] { return call.closed.has_value(); }));
  EXPECT_EQ(call.data.size(), 5005U);
}

TEST_F(ProxiedScheduleTest, AResponseThatWaitsForTheBudgetUntilTheDeadlineIsNotLateAtItsWorker) {
  StartProxy(WithBudget(kBudget));
  TestHttp2Server worker([](TestHttp2Server::Call& call) { call.Answer(std::string(5000, 'x')); });
  ExpectServes(worker.address());
  HeldBudget held(*link_, kBudget - 3000);
  const auto client = NewClient();
  const auto& call = client->Open(Head(worker.address(), {{"grpc-timeout", "1S"}}), FrameMessage("?"));
  EXPECT_TRUE(Await({client.get()}, [&] { return call.closed.has_value(); }));
  EXPECT_EQ(call.status(), "4");
  EXPECT_THAT(call.Field("grpc-message"), ::testing::HasSubstr("ready and waited for the link's grant"));
  EXPECT_TRUE(Eventually([this] { return Metric("sluice_proxy_calls") == 0; }));
  EXPECT_EQ(Metric("sluice_calls_total", "outcome", "expired"), 1);
  EXPECT_EQ(Metric("sluice_timeouts_total", "kind", "queue_deadline"), 1);
  EXPECT_EQ(Metric("sluice_calls_total", "outcome", "rpc_deadline"), 0);
  EXPECT_EQ(Metric("sluice_timeouts_total", "kind", "rpc_deadline"), 0);
}

TEST_F(ProxiedScheduleTest, ACallThatWaitsForLongerThanQueueTimeoutEndsAndDoesNotBlameItsWorker) {
  ScheduleOptions schedule = WithBudget(kBudget);
  schedule.queue_timeout = absl::Milliseconds(50);
  StartProxy(schedule);
  TestHttp2Server worker(Says("!"));
  ExpectServes(worker.address());
  link_->Await([](LinkLoop& loop) {
    EXPECT_TRUE(loop.SetLease({.bytes = 0, .link_bytes = kBudget, .plan_bytes = kBudget}).ok());
  });
  const auto client = NewClient();
  const auto& call = client->Open(Head(worker.address()), FrameMessage("?"));
  EXPECT_TRUE(Await({client.get()}, [&] { return call.closed.has_value(); }));
  EXPECT_EQ(call.status(), "8");
  EXPECT_THAT(call.Field("grpc-message"), ::testing::HasSubstr("queue_timeout, 50ms; it waited for the link"));
  EXPECT_TRUE(Eventually([this] { return Metric("sluice_proxy_calls") == 0; }));
  EXPECT_EQ(Metric("sluice_queue_refusals_total", "reason", "timeout"), 1);
  EXPECT_EQ(Metric("sluice_calls_total", "outcome", "expired"), 1);
  EXPECT_EQ(Metric("sluice_calls_total", "outcome", "rpc_error"), 0);
}

TEST_F(ProxiedScheduleTest, AResponseThatIsNotReadyAtTheDeadlineIsLateAtItsWorker) {
  StartProxy(WithBudget(kBudget));
  TestHttp2Server worker([](TestHttp2Server::Call&) {});
  const auto client = NewClient();
  const auto& call = client->Open(Head(worker.address(), {{"grpc-timeout", "300m"}}), FrameMessage("?"));
  EXPECT_TRUE(Await({client.get()}, [&] { return call.closed.has_value(); }));
  EXPECT_EQ(call.status(), "4");
  EXPECT_TRUE(Eventually([this] { return Metric("sluice_proxy_calls") == 0; }));
  EXPECT_EQ(Metric("sluice_calls_total", "outcome", "expired"), 0);
  EXPECT_EQ(Metric("sluice_calls_total", "outcome", "rpc_deadline"), 1);
  EXPECT_EQ(Metric("sluice_timeouts_total", "kind", "rpc_deadline"), 1);
}

TEST_F(ProxiedScheduleTest, ManyAnswersAtOnceStayWithinTheBudget) {
  StartProxy(WithBudget(kBudget));
  constexpr int kCalls = 40;
  TestHttp2Server worker([](TestHttp2Server::Call& call) { call.Answer(std::string(20'000, 'x')); });
  std::vector<std::unique_ptr<Http2Peer>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(NewClient());
    for (int j = 0; j < kCalls / 4; ++j) clients[i]->Open(Head(worker.address()), FrameMessage("?"));
  }
  int64_t most_bytes = 0;
  EXPECT_TRUE(Eventually([&] {
    size_t open = 0;
    for (const auto& client : clients) {
      client->Pump();
      open += client->session().streams();
    }
    most_bytes = std::max(most_bytes, link_->State().in_flight_bytes);
    int64_t windows = 0;
    worker.Run([&] {
      for (const auto& call : worker.calls()) {
        if (!call->closed()) windows += std::max<int64_t>(call->window_bytes() - kRoom, 0);
      }
    });
    EXPECT_LE(windows, kBudget);
    return open == 0;
  }));
  EXPECT_LE(most_bytes, kBudget);
  EXPECT_GE(link_->State().ended_calls, kCalls) << "all of them were scheduled";
  for (const auto& client : clients) {
    for (const auto* call : client->streams()) EXPECT_EQ(call->data.size(), 20'005U);
  }
  EXPECT_TRUE(AwaitIdle());
}

TEST_F(ProxiedScheduleTest, AStreamIsGrantedMessageByMessageAndHoldsNothingBetweenThem) {
  StartProxy(WithBudget(kBudget));
  TestHttp2Server worker([](TestHttp2Server::Call& call) {
    if (call.request() == "stream") return call.SendHead();
    call.Answer(std::string(20'000, 'y'));
  });
  const auto client = NewClient();
  const auto& stream = client->Open(Head(worker.address()), FrameMessage("stream"));
  ASSERT_TRUE(worker.AwaitRequests(1));
  size_t expected = 0;
  for (int i = 0; i < 3; ++i) {
    worker.Run([&] { worker.calls().front()->SendData(FrameMessage(std::string(10'000, 'x'))); });
    expected += 10'005;
    EXPECT_TRUE(Await({client.get()}, [&] { return stream.data.size() == expected; }));
    // Wait until the call is quiet.
    EXPECT_TRUE(AwaitState([](const ScheduleState& state) { return state.in_flight_bytes == 0; }));
    EXPECT_LE(Window(worker, 0), kRoom);
    ExpectServes(worker.address());
  }
  EXPECT_FALSE(stream.closed.has_value());
}

TEST_F(ProxiedScheduleTest, AStreamWhoseMessagesAreSmallHoldsNothingBetweenThem) {
  StartProxy(WithBudget(kBudget));
  TestHttp2Server worker([](TestHttp2Server::Call& call) {
    call.SendHead();
    call.SendData(FrameMessage("an event"));
  });
  const auto client = NewClient();
  const auto& stream = client->Open(Head(worker.address(), {{"sluice-response-bytes", "5000"}}), FrameMessage("watch"));
  EXPECT_TRUE(Await({client.get()}, [&] { return stream.data.size() == 13; }));
  EXPECT_EQ(link_->State().in_flight_bytes, 0);
  EXPECT_FALSE(stream.closed.has_value());
}

TEST_F(ProxiedScheduleTest, AMethodOfOneMessageHasItsBytesEarlyOnceItIsKnown) {
  StartProxy(WithBudget(kBudget));
  TestHttp2Server worker([](TestHttp2Server::Call& call) {
    if (call.request() == "?") call.Answer("!");
  });
  const auto client = NewClient();
  const auto open = [&] {
    client->Open(Head(worker.address(), {{"sluice-response-bytes", "5000"}}), FrameMessage("wait"));
    client->Pump();
  };
  open();
  ASSERT_TRUE(worker.AwaitRequests(1));
  EXPECT_LE(Window(worker, 0), kRoom);
  ExpectServes(worker.address());
  open();
  ASSERT_TRUE(worker.AwaitRequests(3));
  EXPECT_GT(Window(worker, 2), kRoom);
}

TEST_F(ProxiedScheduleTest, TheDeadlineThatTheWorkerGetsIsWhatQueueingHasLeft) {
  ScheduleOptions rolling = WithBudget(kBudget);
  rolling.policy = SchedulePolicy::kRolling;
  StartProxy(rolling);
  absl::Duration told;
  TestHttp2Server worker([&](TestHttp2Server::Call& call) {
    told = call.head().timeout;
    call.Answer("!");
  });
  ExpectServes(worker.address());
  EXPECT_EQ(told, absl::InfiniteDuration());
  HeldBudget held(*link_, kBudget);
  const auto client = NewClient();
  const auto& call = client->Open(Head(worker.address(), {{"grpc-timeout", "20S"}}), FrameMessage("?"));
  EXPECT_TRUE(AwaitState([](const ScheduleState& state) { return state.waiting_calls == 1; }));
  const auto since = std::chrono::steady_clock::now();
  EXPECT_TRUE(Eventually([&] { return std::chrono::steady_clock::now() - since > std::chrono::milliseconds(30); }));
  held.Release();
  EXPECT_TRUE(Await({client.get()}, [&] { return call.closed.has_value(); }));
  EXPECT_EQ(call.status(), "0");
  EXPECT_LE(told, absl::Seconds(20) - absl::Milliseconds(30));
  EXPECT_GT(told, absl::Seconds(1));
}

TEST_F(ProxiedScheduleTest, ACallWhoseDeadlinePassesInTheQueueIsNotSent) {
  ScheduleOptions rolling = WithBudget(kBudget);
  rolling.policy = SchedulePolicy::kRolling;
  StartProxy(rolling);
  TestHttp2Server worker(Says("!"));
  ExpectServes(worker.address());
  const HeldBudget held(*link_, kBudget);
  const auto client = NewClient();
  const auto& call = client->Open(Head(worker.address(), {{"grpc-timeout", "50m"}}), FrameMessage("?"));
  EXPECT_TRUE(Await({client.get()}, [&] { return call.closed.has_value(); }));
  EXPECT_EQ(call.status(), "4");
  EXPECT_EQ(worker.counts().requests, 1);
}

TEST_F(ProxiedScheduleTest, CallsOfOneFanOutAreOneBlock) {
  StartProxy(WithBudget(kBudget));
  TestHttp2Server worker([](TestHttp2Server::Call&) {});
  const auto first = NewClient();
  const auto second = NewClient();
  const HeaderList fan_out = {{"sluice-block", "query-1"}, {"sluice-weight", "3"}};
  first->Open(Head(worker.address(), fan_out), FrameMessage("?"));
  ASSERT_TRUE(worker.AwaitRequests(1));
  second->Open(Head(worker.address(), fan_out), FrameMessage("?"));
  first->Open(Head(worker.address(), fan_out), FrameMessage("?"));
  ASSERT_TRUE(worker.AwaitRequests(3));
  EXPECT_EQ(link_->State().blocks, 1);
  first->Open(Head(worker.address(), fan_out), FrameMessage("?"));
  ASSERT_TRUE(worker.AwaitRequests(4));
  EXPECT_EQ(link_->State().blocks, 2) << "the weight is used up";
  first->Open(Head(worker.address()), FrameMessage("?"));
  ASSERT_TRUE(worker.AwaitRequests(5));
  EXPECT_EQ(link_->State().blocks, 3) << "a call alone";
}

TEST_F(ProxiedScheduleTest, EachCallOfAFanOutHasItsOwnDeadline) {
  StartProxy(WithBudget(kBudget));
  TestHttp2Server worker([](TestHttp2Server::Call&) {});
  const auto client = NewClient();
  const auto open = [&](const std::string& timeout) -> const Http2Peer::Stream& {
    return client->Open(
        Head(worker.address(), {{"sluice-block", "q"}, {"sluice-weight", "2"}, {"grpc-timeout", timeout}}),
        FrameMessage("?"));
  };
  const auto& first = open("1n");
  const auto& second = open("1H");
  ASSERT_TRUE(worker.AwaitRequests(2));
  EXPECT_EQ(link_->State().blocks, 1);
  // The proxy must end the call: neither the hung client nor this worker ends it.
  EXPECT_TRUE(Await({client.get()}, [&] { return first.closed.has_value(); }));
  EXPECT_EQ(first.status(), "4");
  EXPECT_FALSE(second.closed.has_value());
}

class ProxiedClassesTest : public ProxiedScheduleTest {
 protected:
  static ScheduleOptions WithClasses() {
    ScheduleOptions schedule = WithBudget(kBudget);
    schedule.classes = {{.name = "queries", .weight = 3}, {.name = "scan", .weight = 1}};
    return schedule;
  }
  int64_t WaitingIn(size_t traffic_class) {
    int64_t calls = 0;
    link_->Await([&](LinkLoop& loop) { calls = loop.schedule().ClassState(traffic_class).waiting_calls; });
    return calls;
  }
};

TEST_F(ProxiedClassesTest, ACallIsInTheClassThatItNames) {
  StartProxy(WithClasses());
  TestHttp2Server worker(Says("!"));
  ExpectServes(worker.address());
  link_->Await([](LinkLoop& loop) {
    EXPECT_TRUE(loop.SetLease({.bytes = 0, .link_bytes = kBudget, .plan_bytes = kBudget}).ok());
  });
  const auto client = NewClient();
  client->Open(Head(worker.address(), {{"sluice-class", "scan"}}), FrameMessage("?"));
  client->Open(Head(worker.address(), {{"sluice-class", "scan"}}), FrameMessage("?"));
  client->Open(Head(worker.address(), {{"sluice-class", "queries"}}), FrameMessage("?"));
  client->Open(Head(worker.address()), FrameMessage("?"));
  client->Open(Head(worker.address()), FrameMessage("?"));
  EXPECT_TRUE(AwaitState([](const ScheduleState& state) { return state.waiting_calls == 5; }));
  EXPECT_EQ(WaitingIn(0), 3) << "a call that names no class is in the first";
  EXPECT_EQ(WaitingIn(1), 2);
}

TEST_F(ProxiedClassesTest, TheIdentityOfAClientDecidesAboutItsClass) {
  TestHttp2Server worker(Says("!"));
  const std::string own = absl::StrCat("unix-abstract:sluice-proxy-test-", getpid(), "-classes");
  options_.listeners = {{.address = "127.0.0.1:0", .route = ""}, {.address = own, .route = ""}};
  options_.clients = {{.users = {geteuid()}, .names = {}, .workers = {worker.address()}, .traffic_class = "scan"}};
  StartProxy(WithClasses());
  ExpectServes(worker.address());
  link_->Await([](LinkLoop& loop) {
    EXPECT_TRUE(loop.SetLease({.bytes = 0, .link_bytes = kBudget, .plan_bytes = kBudget}).ok());
  });
  const auto other = NewClient();  // the proxy cannot identify this client
  const auto client = std::make_unique<Http2Peer>(ConnectTo(own));
  other->Open(Head(worker.address()), FrameMessage("?"));
  client->Open(Head(worker.address()), FrameMessage("?"));
  client->Open(Head(worker.address(), {{"sluice-class", "scan"}}), FrameMessage("?"));
  const auto& refused = client->Open(Head(worker.address(), {{"sluice-class", "queries"}}), FrameMessage("?"));
  EXPECT_TRUE(Await({client.get(), other.get()}, [&] { return refused.closed.has_value(); }));
  EXPECT_EQ(refused.status(), "7");
  EXPECT_EQ(refused.Field("grpc-message"), "sluice-class \"queries\": calls of this client are in class \"scan\"");
  EXPECT_TRUE(AwaitState([](const ScheduleState& state) { return state.waiting_calls == 3; }));
  EXPECT_EQ(WaitingIn(0), 1);
  EXPECT_EQ(WaitingIn(1), 2);
}

TEST_F(ProxiedClassesTest, AClassThatIsNotKnownIsRefusedWithTheKnownClasses) {
  StartProxy(WithClasses());
  TestHttp2Server worker(Says("!"));
  const auto client = NewClient();
  const auto& call = client->Open(Head(worker.address(), {{"sluice-class", "batch"}}), FrameMessage("?"));
  EXPECT_TRUE(Await({client.get()}, [&] { return call.closed.has_value(); }));
  EXPECT_EQ(call.status(), "3");
  EXPECT_EQ(call.Field("grpc-message"), "sluice-class \"batch\" is not a class of the link, which has queries, scan");
  EXPECT_EQ(worker.counts().requests, 0);
  ExpectServes(worker.address());
}

TEST_F(ProxiedScheduleTest, ACallOfAFanOutThatHasEndedStandsAlone) {
  StartProxy(WithBudget(kBudget));
  TestHttp2Server worker(Says("!"));
  const auto client = NewClient();
  for (int i = 0; i < 3; ++i) {
    const auto& call =
        client->Open(Head(worker.address(), {{"sluice-block", "q"}, {"sluice-weight", "9"}}), FrameMessage("?"));
    EXPECT_TRUE(Await({client.get()}, [&] { return call.closed.has_value(); }));
    EXPECT_EQ(call.status(), "0");
  }
  EXPECT_TRUE(AwaitIdle());
}

}  // namespace
}  // namespace sluice::testing
