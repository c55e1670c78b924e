#include <atomic>
#include <thread>

#include "sluice/fan_out.h"

#include "absl/strings/str_cat.h"
#include "tests/unit/fan_out/fan_out_fixture.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using testing::HasCode;
using ::testing::HasSubstr;
using testing::Holds;
using ::testing::IsEmpty;
using testing::NameOf;
using testing::Text;
using testing::TextOf;

// Changes of the workers of a FanOut.
class FanOutWorkersTest : public testing::FanOutTest {
 protected:
  std::vector<std::string> Addresses(const std::vector<size_t>& servers) {
    std::vector<std::string> addresses;
    for (size_t i : servers) addresses.push_back(server(i).address());
    return addresses;
  }
  void Update(const std::vector<size_t>& servers) {
    const absl::Status updated = fan_out_->UpdateWorkers(Addresses(servers));
    EXPECT_TRUE(updated.ok()) << updated;
  }
  std::string PortOf(size_t i) { return server(i).address().substr(server(i).address().rfind(':') + 1); }
  // A name that every machine can look up.
  std::string Named(size_t i) { return "dns+localhost:" + PortOf(i); }
  static FanOut::Map<Text> AskThose() {
    return [](size_t) { return TextOf("?"); };
  }
  // Returns the responses of the workers, in the order of the workers.
  std::vector<std::string> AskAll() {
    const auto [result, responses] = fan_out_->Collect(kUnary, [](size_t) { return TextOf("?"); });
    EXPECT_TRUE(result.status.ok()) << result.status;
    std::vector<std::string> said;
    for (const auto& answers : responses) said.push_back(answers.empty() ? "" : answers.front().value());
    return said;
  }
};

INSTANTIATE_TEST_SUITE_P(By, FanOutWorkersTest, ::testing::Values(SchedulePolicy::kRolling, SchedulePolicy::kGrants),
                         NameOf);

TEST_P(FanOutWorkersTest, WorkersThatAreAddedAreAsked) {
  Start(3);
  Update({0});
  EXPECT_EQ(fan_out_->workers(), 1u);
  EXPECT_THAT(AskAll(), ElementsAre("0"));
  Update({0, 1, 2});
  EXPECT_EQ(fan_out_->workers(), 3u);
  EXPECT_EQ(fan_out_->address(2), server(2).address());
  EXPECT_THAT(AskAll(), ElementsAre("0", "1", "2"));
}

TEST_P(FanOutWorkersTest, WorkersThatAreRemovedAreNotAskedAndTheirConnectionsEnd) {
  Start(2);
  EXPECT_THAT(AskAll(), ElementsAre("0", "1"));
  Update({1});
  EXPECT_THAT(AskAll(), ElementsAre("1"));
  EXPECT_EQ(server(0).counts().requests, 1);
  EXPECT_TRUE(testing::Eventually([&] { return Gauge("sluice_workers_connected") == 1; }));
  EXPECT_EQ(Gauge("sluice_workers_wanted"), 1);
}

TEST_P(FanOutWorkersTest, AnAddressThatStaysKeepsItsConnection) {
  Start(3);
  EXPECT_THAT(fan_out_->Connect(), IsEmpty());
  EXPECT_THAT(AskAll(), ElementsAre("0", "1", "2"));
  for (int round = 0; round < 5; ++round) {
    Update({2, 1});
    EXPECT_THAT(AskAll(), ElementsAre("2", "1")) << "their order is another one";
    Update({1, 2, 0});
    EXPECT_THAT(AskAll(), ElementsAre("1", "2", "0"));
  }
  EXPECT_EQ(server(1).connections(), 1u);
  EXPECT_EQ(server(2).connections(), 1u);
}

TEST_P(FanOutWorkersTest, AWorkerThatComesBackIsConnectedAnew) {
  Start(2);
  EXPECT_THAT(AskAll(), ElementsAre("0", "1"));
  Update({1});
  ASSERT_TRUE(testing::Eventually([&] { return Gauge("sluice_workers_connected") == 1; }));
  Update({0, 1});
  EXPECT_THAT(AskAll(), ElementsAre("0", "1"));
  EXPECT_EQ(server(0).connections(), 2u);
  EXPECT_EQ(server(1).connections(), 1u);
}

TEST_P(FanOutWorkersTest, WhatHasBegunEndsWithTheWorkersThatItBeganWith) {
  Start(2);
  server(0).SetPlay(Holds("0"));
  std::vector<std::string> merged;
  const auto pending = CallAsync(Ask(2), {}, [&](size_t worker, const Text& text) {
    EXPECT_EQ(text.value(), std::to_string(worker));
    merged.push_back(text.value());
    return absl::OkStatus();
  });
  ASSERT_TRUE(server(0).AwaitHolding(1));
  Update({1});
  EXPECT_THAT(AskAll(), ElementsAre("1"));
  server(0).Release();
  ASSERT_TRUE(pending->Await());
  EXPECT_TRUE(pending->result().status.ok()) << pending->result().status;
  EXPECT_THAT(merged, ElementsAre("1", "0"));
}

TEST_P(FanOutWorkersTest, AListThatIsRefusedChangesNothing) {
  Start(2);
  EXPECT_THAT(fan_out_->UpdateWorkers({}), HasCode(absl::StatusCode::kInvalidArgument));
  const absl::Status refused = fan_out_->UpdateWorkers({server(0).address(), "nonsense"});
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("workers[1]: "));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("\"nonsense\" is not host:port"));
  EXPECT_THAT(AskAll(), ElementsAre("0", "1"));
}

TEST_P(FanOutWorkersTest, WorkersThatComeAfterConnectAreConnectedWithoutACall) {
  Start(3);
  Update({0});
  EXPECT_THAT(fan_out_->Connect(), IsEmpty());
  Update({0, 1, 2});
  EXPECT_TRUE(testing::Eventually([&] { return Gauge("sluice_workers_connected") == 3; }));
}

TEST_P(FanOutWorkersTest, TheResultHasTheAddressesOfThoseThatItCounts) {
  Start(2);
  server(0).SetPlay(Holds("0"));
  const auto pending = CallAsync(Ask(2));
  ASSERT_TRUE(server(0).AwaitHolding(1));
  Update({1});
  EXPECT_EQ(fan_out_->address(1), "");
  server(0).Release();
  ASSERT_TRUE(pending->Await());
  ASSERT_NE(pending->result().workers, nullptr);
  EXPECT_THAT(*pending->result().workers, ElementsAre(server(0).address(), server(1).address()));
}

TEST_P(FanOutWorkersTest, ARangeIsAllOfItsWorkers) {
  Start(2);
  EXPECT_THAT(AskAll(), ElementsAre("0", "1"));
  const absl::Status updated =
      fan_out_->UpdateWorkers({server(1).address(), absl::StrCat("127.0.0.1:{", PortOf(0), "..", PortOf(0), "}")});
  EXPECT_TRUE(updated.ok()) << updated;
  EXPECT_THAT(AskAll(), ElementsAre("1", "0"));
  EXPECT_EQ(server(0).connections(), 1u) << "it is the same worker, however it is written";
}

TEST_P(FanOutWorkersTest, EachAddressOfANameIsAWorkerFromTheStart) {
  StartServers(1);
  MakeFanOut({}, {.workers = {Named(0)}});
  // The fixture itself adds the address, which comes first.
  ASSERT_EQ(fan_out_->workers(), 2u);
  EXPECT_EQ(fan_out_->address(0), server(0).address());
  EXPECT_THAT(fan_out_->address(1), AnyOf(server(0).address(), "[::1]:" + PortOf(0)));
}

TEST_P(FanOutWorkersTest, ANameThatIsUpdatedToIsLookedUpAndAListEndsThat) {
  Start(2);
  Update({0});
  ASSERT_TRUE(fan_out_->UpdateWorkers({server(1).address(), Named(0)}).ok());
  EXPECT_TRUE(testing::Eventually([&] { return fan_out_->workers() == 2; }));
  EXPECT_EQ(fan_out_->address(0), server(1).address());
  Update({0});
  EXPECT_EQ(fan_out_->workers(), 1u);
  EXPECT_THAT(AskAll(), ElementsAre("0"));
}

TEST_P(FanOutWorkersTest, WithoutALookUpTheWorkersBeforeStay) {
  Start(1);
  ASSERT_TRUE(fan_out_->UpdateWorkers({"dns+w.invalid:7"}).ok());
  EXPECT_TRUE(testing::Eventually([&] { return Metric("sluice_worker_lookup_failures_total") >= 1; }));
  EXPECT_THAT(AskAll(), ElementsAre("0"));
}

TEST_P(FanOutWorkersTest, WithoutAnyWorkerItIsUnavailableAndSaysWhy) {
  auto link = Link::Create(LinkProfile());
  ASSERT_TRUE(link.ok()) << link.status();
  const auto fan_out =
      FanOut::Create(*link, {.workers = {"dns+w.invalid:7"}, .connect_timeout = absl::Milliseconds(1)});
  ASSERT_TRUE(fan_out.ok()) << fan_out.status();
  EXPECT_EQ((*fan_out)->workers(), 0u);
  EXPECT_THAT((*fan_out)->Connect(), IsEmpty());
  absl::Status status;
  EXPECT_TRUE(testing::Eventually([&] {
    status = (*fan_out)->Collect(kUnary, AskThose(), {.success_quorum = 1}).first.status;
    return status.message() != "no worker is known yet";  // before the first look-up has ended
  }));
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("no worker is known yet: "), HasSubstr("dns+w.invalid:7")));
}

TEST_P(FanOutWorkersTest, AFanOutMayGoWhileNamesAreLookedUp) {
  Start(1);
  for (int i = 0; i < 20; ++i) {
    const auto fan_out = FanOut::Create(link_, {.workers = {server(0).address()}});
    ASSERT_TRUE(fan_out.ok()) << fan_out.status();
    ASSERT_TRUE((*fan_out)->UpdateWorkers({i % 2 == 0 ? Named(0) : "w-{0..}.invalid:7"}).ok());
  }
  EXPECT_THAT(AskAll(), ElementsAre("0"));
}

TEST_P(FanOutWorkersTest, UnderLoadNoCallFails) {
  constexpr int kRounds = 60;
  Start(4);
  std::atomic<bool> stop = false;
  std::atomic<int> calls = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] {
      while (!stop) {
        const auto [result, responses] = fan_out_->Collect(kUnary, [](size_t) { return TextOf("?"); });
        EXPECT_TRUE(result.status.ok()) << result.status;
        EXPECT_EQ(result.answered, result.asked);
        ++calls;
      }
    });
  }
  for (int round = 0; round < kRounds; ++round) {
    const int before = calls;
    Update(round % 2 == 0 ? std::vector<size_t>{0, 1} : std::vector<size_t>{3, 0, 2, 1});
    EXPECT_TRUE(testing::Eventually([&] { return calls > before + 3; }));
  }
  stop = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(server(0).connections(), 1u);
  EXPECT_EQ(server(1).connections(), 1u);
  EXPECT_TRUE(AwaitIdle());
}

}  // namespace
}  // namespace sluice
