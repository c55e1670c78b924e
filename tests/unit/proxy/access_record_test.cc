#include "lib/proxy/access_record.h"

#include <algorithm>
#include <string>
#include <vector>

#include <unistd.h>

#include "gmock/gmock.h"
#include "tests/unit/net/link_thread.h"
#include "tests/unit/net/silent_listener.h"
#include "tests/unit/proxy/proxy_fixture.h"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const absl::Time kNow = absl::FromUnixMillis(1'700'000'000'123);

TEST(AccessRecordTest, IsALineOfJson) {
  const AccessRecord record{.group = "uid 7",
                            .method = "/a.B/C",
                            .worker = "10.0.0.7:7000",
                            .pattern = "10.0.0.0/8",
                            .traffic_class = "query",
                            .waited = absl::Microseconds(1500),
                            .ready = absl::Milliseconds(2),
                            .granted = absl::ZeroDuration(),
                            .received = absl::Milliseconds(3),
                            .took = absl::Microseconds(6500),
                            .response_bytes = 12345,
                            .outcome = absl::StatusCode::kResourceExhausted,
                            .limit = "limits.calls",
                            .traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"};
  EXPECT_EQ(
      AccessLine(record, kNow),
      R"({"time":"2023-11-14T22:13:20.123Z","client":"uid 7","method":"/a.B/C","worker":"10.0.0.7:7000",)"
      R"("workers":"10.0.0.0/8","class":"query","waited_ms":1.500,"ready_ms":2.000,"granted_ms":0.000,)"
      R"("received_ms":3.000,"took_ms":6.500,"bytes":12345,"outcome":"RESOURCE_EXHAUSTED","limit":"limits.calls",)"
      R"("traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})");
}

TEST(AccessRecordTest, NamesOfClientsBreakNoLine) {
  const std::string method = "/\"\\\n\xff" + std::string(10'000, 'x');
  const std::string line = AccessLine({.method = method, .outcome = absl::StatusCode::kUnavailable}, kNow);
  EXPECT_THAT(line, HasSubstr(R"("method":"/\"\\??xxx)"));
  EXPECT_THAT(line, Not(HasSubstr("waited_ms"))) << "it was never sent";
  EXPECT_THAT(line, Not(HasSubstr("limit")));
  EXPECT_LE(line.size(), 2048u);
}

class AccessLogTest : public ProxyTest {
 protected:
  void TearDown() override { proxy_.reset(); }
  // Makes calls, and returns the recorded outcomes.
  std::vector<std::string> OutcomesOf(const std::string& worker, int calls) {
    std::vector<std::string> outcomes;
    options_.on_access = [&](const AccessRecord& record) {
      outcomes.emplace_back(absl::StatusCodeToString(record.outcome));
    };
    StartProxy();
    const auto client = NewClient();
    for (int i = 0; i < calls; ++i) StatusOf(*client, worker);
    proxy_.reset();
    return outcomes;
  }
};

TEST_F(AccessLogTest, ACallIsRecordedWithWhereItsTimeWent) {
  std::vector<std::string> lines;
  options_.on_access = [&](const AccessRecord& record) {
    EXPECT_GE(record.waited, absl::ZeroDuration());
    EXPECT_GE(record.ready, absl::ZeroDuration());
    EXPECT_GE(record.granted, absl::ZeroDuration());
    EXPECT_LE(record.waited + record.ready + record.received, record.took + absl::Microseconds(1));
    lines.push_back(absl::StrCat(record.group, " ", record.method, " ", record.worker, " ", record.pattern, " ",
                                 record.response_bytes, " ", record.traceparent));
  };
  TestHttp2Server worker(Says("!"));
  StartProxy();
  const auto client = NewClient();
  const auto& call = client->Open(Head(worker.address(), {{"traceparent", "00-1-2-01"}}), FrameMessage("?"));
  EXPECT_TRUE(Await({client.get()}, [&] { return call.closed.has_value(); }));
  proxy_.reset();
  EXPECT_THAT(
      lines, ElementsAre(absl::StrCat("127.0.0.1:0 /test.Answers/Get ", worker.address(), " 127.0.0.0/8 6 00-1-2-01")));
}

TEST_F(AccessLogTest, OnlyCallsThatEndWellAreSampled) {
  TestHttp2Server worker(Says("!"));
  options_.proxy.access_sample = 0;
  EXPECT_THAT(OutcomesOf(worker.address(), 5), IsEmpty());
  EXPECT_THAT(OutcomesOf("8.8.8.8:1", 2), ElementsAre("PERMISSION_DENIED", "PERMISSION_DENIED"));
}

// --- Calls that the proxy refuses.

class AccessOfRefusedTest : public ProxyTest {
 protected:
  void SetUp() override {
    options_.on_access = [this](const AccessRecord& record) {
      lines_.Add(absl::StrCat(record.method, " ", absl::StatusCodeToString(record.outcome), " ", record.limit, " ",
                              record.traceparent));
    };
  }
  void TearDown() override { proxy_.reset(); }
  const Http2Peer::Stream& OpenAndEnd(Http2Peer& client, const HeaderList& head) {
    const auto& call = client.Open(head, FrameMessage("?"));
    EXPECT_TRUE(Await({&client}, [&] { return call.closed.has_value(); }));
    return call;
  }

  EventLog lines_;
};

TEST_F(AccessOfRefusedTest, ACallAboveTheLimitHasALine) {
  options_.proxy.max_calls = 1;
  TestHttp2Server worker([](TestHttp2Server::Call&) {});
  StartProxy();
  const auto client = NewClient();
  client->Open(Head(worker.address()), FrameMessage("?"));
  OpenAndEnd(*client, Head(worker.address(), {{"traceparent", "00-1-2-01"}}));
  EXPECT_THAT(lines_.events(), ElementsAre("/test.Answers/Get RESOURCE_EXHAUSTED limits.calls 00-1-2-01"));
}

TEST_F(AccessOfRefusedTest, ALimitOfAGroupIsOneOfClients) {
  ClientPolicies::Group group{.users = {geteuid()}, .names = {}, .workers = {"127.0.0.0/8"}, .traffic_class = ""};
  group.share.calls = 1;
  options_.clients = {group};
  options_.listeners = {{.address = absl::StrCat("unix-abstract:sluice-access-test-", getpid()), .route = ""}};
  TestHttp2Server worker([](TestHttp2Server::Call&) {});
  StartProxy();
  const auto client = NewClient();
  client->Open(Head(worker.address()), FrameMessage("?"));
  OpenAndEnd(*client, Head(worker.address()));
  EXPECT_THAT(lines_.events(), ElementsAre("/test.Answers/Get RESOURCE_EXHAUSTED clients.limits.calls "));
}

// A client that lets refusals pile up receives resets without a reason.
TEST_F(AccessOfRefusedTest, ACallThatIsRefusedUnreadHasALine) {
  options_.proxy.max_calls = 1;
  TestHttp2Server worker([](TestHttp2Server::Call&) {});
  StartProxy();
  const auto client = NewClient();
  client->Open(Head(worker.address()), FrameMessage("?"));
  // Refused calls stay open while their requests are incomplete.
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().open_slots() > 102; }));
  for (int i = 0; i < 100; ++i) client->Open(Head(worker.address()), "", /*end_stream=*/false);
  OpenAndEnd(*client, Head(worker.address()));
  EXPECT_EQ(lines_.events().size(), 101U);
  EXPECT_EQ(lines_.events().back(), " UNAVAILABLE limits.calls ");
}

TEST_F(AccessOfRefusedTest, OtherLimitsAreNamed) {
  options_.proxy.max_targets = 1;
  TestHttp2Server worker(Says("!"));
  TestHttp2Server other(Says("!"));
  StartProxy();
  const auto client = NewClient();
  const auto& streams = client->Open(Head(worker.address()), "", /*end_stream=*/false);
  EXPECT_TRUE(Await({client.get()}, [&] { return Metric("sluice_proxy_calls") == 1; }));
  OpenAndEnd(*client, Head(other.address()));
  EXPECT_THAT(lines_.events(), ElementsAre("/test.Answers/Get RESOURCE_EXHAUSTED limits.targets "));
  EXPECT_FALSE(streams.closed.has_value());
}

TEST_F(AccessOfRefusedTest, AFullQueueIsNamed) {
  ScheduleOptions schedule = WithBudget(16 << 10);
  schedule.queue_limit = 1;
  TestHttp2Server worker([](TestHttp2Server::Call&) {});
  StartProxy(schedule);
  const auto client = NewClient();
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().open_slots() > 400; }));
  for (int i = 0; i < 400; ++i) client->Open(Head(worker.address()), FrameMessage("?"));
  EXPECT_TRUE(Await({client.get()}, [&] { return !lines_.events().empty(); }));
  EXPECT_EQ(lines_.events().front(), "/test.Answers/Get RESOURCE_EXHAUSTED schedule.queue_limit ");
}

// The link's queue refuses further calls to a worker for which too many calls wait already.
TEST_F(AccessOfRefusedTest, AFullQueueOfAWorkerIsNamed) {
  ScheduleOptions schedule = WithBudget(16 << 10);
  schedule.queue_limit = 200;
  const SilentListener silent;
  StartProxy(schedule);
  const auto client = NewClient();
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().open_slots() > 101; }));
  std::vector<const Http2Peer::Stream*> calls;
  for (int i = 0; i < 101; ++i) calls.push_back(&client->Open(Head(silent.address()), FrameMessage("?")));
  const auto refused = [&] {
    return std::find_if(calls.begin(), calls.end(), [](const auto* call) { return call->closed.has_value(); });
  };
  ASSERT_TRUE(Await({client.get()}, [&] { return refused() != calls.end() && !lines_.events().empty(); }));
  EXPECT_THAT((*refused())->Field("grpc-retry-pushback-ms"), ::testing::MatchesRegex("[0-9]+"));
  EXPECT_EQ(lines_.events().front(), "/test.Answers/Get RESOURCE_EXHAUSTED schedule.queue_limit ");
  EXPECT_EQ(Metric("sluice_queue_refusals_total", "reason", "worker"), 1);
}

TEST_F(AccessOfRefusedTest, AFullQueueOfAClassIsNamed) {
  ScheduleOptions schedule = WithBudget(16 << 10);
  schedule.classes = {{.name = "scan", .queue_limit = 1}};
  const SilentListener silent;
  StartProxy(schedule);
  const auto client = NewClient();
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().open_slots() > 2; }));
  for (int i = 0; i < 2; ++i) client->Open(Head(silent.address()), FrameMessage("?"));
  EXPECT_TRUE(Await({client.get()}, [&] { return !lines_.events().empty(); }));
  EXPECT_EQ(lines_.events().front(), "/test.Answers/Get RESOURCE_EXHAUSTED schedule.classes.queue_limit ");
}

TEST_F(AccessOfRefusedTest, AWorkersOwnStatusHasNoLimit) {
  TestHttp2Server worker([](TestHttp2Server::Call& call) { call.Fail(absl::ResourceExhaustedError("its own")); });
  StartProxy();
  const auto client = NewClient();
  OpenAndEnd(*client, Head(worker.address()));
  EXPECT_THAT(lines_.events(), ElementsAre("/test.Answers/Get RESOURCE_EXHAUSTED  "));
}

}  // namespace
}  // namespace sluice::testing
