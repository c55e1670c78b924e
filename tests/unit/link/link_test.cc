#include "sluice/link.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/link/callbacks.h"
#include "lib/link/link_loop.h"
#include "tests/unit/storage/blocks/test_cluster.h"

namespace sluice {
namespace {

using testing::HasCode;
using ::testing::HasSubstr;
using testing::Slow;
using testing::TestCluster;

void ExpectRefused(const Link::Options& options, const std::string& field) {
  const auto link = Link::Create(options);
  EXPECT_THAT(link.status(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(link.status().message()), HasSubstr(field));
}

TEST(LinkTest, CreateNamesTheFieldThatIsOutsideOfItsBound) {
  ExpectRefused({.schedule = {.budget_bytes = 0}}, "budget_bytes");
  ExpectRefused({.schedule = {.queue_limit = 0}}, "queue_limit");
  ExpectRefused({.schedule = {.profile = {.capacity_bytes_per_second = 0}}}, "capacity");
  ExpectRefused({.callback_threads = 0}, "callback_threads: 0 is outside of 1 to 64");
  ExpectRefused({.worker_connections = 0}, "worker_connections: 0 is outside of 1 to 16");
  ExpectRefused({.worker_connections = 17}, "worker_connections: 17 is outside of 1 to 16");
  ExpectRefused({.callback_memory_bytes = 0}, "callback_memory_bytes: 0 is outside of 1 to 1099511627776");
  ExpectRefused({.callback_memory_bytes = (int64_t{1} << 40) + 1}, "callback_memory_bytes: 1099511627777 is outside");
}

TEST(LinkTest, RefusesBoundsBetweenWhichNoBudgetFits) {
  ExpectRefused({.budget = {.floor_bytes = 0}}, "budget.floor_bytes: 0 is below 1");
  ExpectRefused({.budget = {.floor_bytes = -5, .limit_bytes = -5}}, "budget.floor_bytes: -5 is below 1");
  ExpectRefused({.budget = {.floor_bytes = 100, .limit_bytes = 99}},
                "budget.limit_bytes: 99 is below floor_bytes: 100");
  ExpectRefused({.schedule = {.profile = {.buffer_bytes = 5000}}, .budget = {.floor_bytes = (4 << 20) + 1}},
                "budget.limit_bytes: 4194304 is below floor_bytes: 4194305");
  ExpectRefused({.budget = {.limit_bytes = 0}}, "budget.limit_bytes: 0 is below");
  EXPECT_TRUE(Link::Validate({.budget = {.floor_bytes = 1, .limit_bytes = 1}}).ok());
}

struct BoundsCase {
  Link::Options options;
  int64_t floor_bytes;
  int64_t start_bytes;
  int64_t limit_bytes;
};

TEST(LinkTest, BoundsTheBudgetByWhatIsGivenAndWhatIsKnown) {
  constexpr int64_t kFloor = 8 * 1514;
  constexpr int64_t kLimit = 4 << 20;
  const std::vector<BoundsCase> cases = {
      {{}, kFloor, 32768, kLimit},
      {{.budget = {.buffer_known = false}}, kFloor, 16384, kLimit},
      {{.schedule = {.budget_bytes = 20000}}, 20000, 20000, 20000},
      {{.schedule = {.policy = SchedulePolicy::kUnscheduled}}, 32768, 32768, 32768},
      {{.schedule = {.profile = {.buffer_bytes = 5000}}}, 5000, 5000, kLimit},
      {{.schedule = {.budget_bytes = 20000}, .budget = {.limit_bytes = 50000}}, kFloor, 20000, 50000},
      {{.schedule = {.budget_bytes = 20000}, .budget = {.floor_bytes = 6000}}, 6000, 20000, kLimit},
      {{.schedule = {.budget_bytes = 20000}, .budget = {.floor_bytes = 30000}}, 30000, 30000, kLimit},
      {{.budget = {.limit_bytes = 10000}}, 10000, 10000, 10000},
      {{.budget = {.buffer_known = false, .limit_bytes = 100000}}, kFloor, 16384, 100000},
  };
  for (const BoundsCase& bounds : cases) {
    SCOPED_TRACE(&bounds - cases.data());
    const auto link = Link::Create(bounds.options);
    ASSERT_TRUE(link.ok()) << link.status();
    std::map<std::string, double> gauges;
    for (const auto& family : (*link)->gauges().Collect()) gauges[family.name] = family.metric.front().gauge.value;
    EXPECT_EQ(gauges.at("sluice_budget_floor_bytes"), static_cast<double>(bounds.floor_bytes));
    EXPECT_EQ(gauges.at("sluice_budget_limit_bytes"), static_cast<double>(bounds.limit_bytes));
    EXPECT_EQ(gauges.at("sluice_budget_ceiling_bytes"), 0);
    if (bounds.options.schedule.policy == SchedulePolicy::kUnscheduled) continue;  // has no budget
    EXPECT_EQ((*link)->State().budget_bytes, bounds.start_bytes);
  }
}

TEST(LinkTest, StartsIdleWithTheBufferAsItsBudget) {
  const auto link = Link::Create(LinkProfile{.buffer_bytes = 12345});
  ASSERT_TRUE(link.ok());
  const ScheduleState state = (*link)->State();
  EXPECT_EQ(state.budget_bytes, 12345);
  EXPECT_EQ(state.in_flight_bytes, 0);
  EXPECT_EQ(state.submitted_calls, 0);
}

TEST(LinkTest, SetBudgetTakesEffectOrSaysWhyNot) {
  const auto link = Link::Create(LinkProfile{});
  ASSERT_TRUE(link.ok());
  EXPECT_TRUE((*link)->SetBudget(1).ok());
  EXPECT_EQ((*link)->State().budget_bytes, 1);
  const absl::Status status = (*link)->SetBudget(0);
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(status.message()), HasSubstr("budget_bytes"));
  EXPECT_EQ((*link)->State().budget_bytes, 1);
}

TEST(LinkTest, GaugesShowTheScheduleAndGoWithTheLink) {
  const auto registry = std::make_shared<prometheus::Registry>();
  auto link = Link::Create({.registry = registry});
  ASSERT_TRUE(link.ok());
  EXPECT_EQ(&(*link)->registry(), registry.get());
  EXPECT_FALSE((*link)->gauges().Collect().empty());
  link->reset();
  EXPECT_FALSE(registry->Collect().empty()) << "the counters stay in the registry of the application";
}

// Returns the thread that a callback runs on, and sets whether it is the link's thread.
std::thread::id CallbackThread(Link& link, bool& on_links_thread) {
  std::promise<std::thread::id> ran_on;
  std::thread::id links_thread;
  link.Await([&](LinkLoop&) {
    links_thread = std::this_thread::get_id();
    link.callbacks().Run(&ran_on, [&] { ran_on.set_value(std::this_thread::get_id()); });
  });
  const std::thread::id callback_thread = ran_on.get_future().get();
  on_links_thread = callback_thread == links_thread;
  return callback_thread;
}

TEST(LinkTest, CallbacksRunOnOneThreadOfTheirOwn) {
  const auto link = Link::Create(LinkProfile{});
  ASSERT_TRUE(link.ok());
  bool on_links_thread = true;
  const std::thread::id first = CallbackThread(**link, on_links_thread);
  EXPECT_FALSE(on_links_thread);
  EXPECT_NE(first, std::this_thread::get_id());
  EXPECT_EQ(CallbackThread(**link, on_links_thread), first);
}

TEST(LinkTest, InlineCallbacksRunOnTheThreadOfTheLink) {
  const auto link = Link::Create({.inline_callbacks = true});
  ASSERT_TRUE(link.ok());
  bool on_links_thread = false;
  CallbackThread(**link, on_links_thread);
  EXPECT_TRUE(on_links_thread);
}

// Three responses at once would exceed the budget; both readers together stay within it. No worker counts as slow,
// however late the machine is: calls do not stall, and the slow port makes laps long. Bytes of slow workers may exceed
// the budget.
TEST(LinkTest, TwoReadersOnOneLinkShareItsBudget) {
  TestCluster cluster(
      {.workers = 8,
       .file_bytes = 8 * 4096 * 4,
       .schedule = {
           .profile = {.capacity_bytes_per_second = 1000}, .budget_bytes = 12000, .stall_timeout = absl::Hours(1)}});
  std::atomic<int64_t> most_bytes = 0;
  // Look whenever a worker receives a request. Rejected: a thread that looks all the time, which a busy machine delays.
  cluster.SpoilSrus([&](const auto&) {
    const int64_t bytes = cluster.link().State().in_flight_bytes;
    for (int64_t most = most_bytes; bytes > most && !most_bytes.compare_exchange_weak(most, bytes);) continue;
    return Slow(absl::Milliseconds(2));
  });
  auto other = BlockReader::Create(cluster.shared_link(), cluster.reader_options());
  ASSERT_TRUE(other.ok());
  std::vector<std::thread> readers;
  for (BlockReader* reader : {&cluster.reader(), other->get()}) {
    readers.emplace_back([&, reader] {
      const auto result = testing::Drain(*reader->Open("data", std::nullopt));
      EXPECT_TRUE(result.status.ok()) << result.status;
      EXPECT_TRUE(result.data == cluster.source());
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_GT(most_bytes, 2 * 4096);
  EXPECT_LE(most_bytes, 12000);
}

// Changes the size from 1 to 65,536, one value after the other on a separate thread, while slow workers read a file.
void ExpectReadWhile(const std::function<void(int64_t bytes)>& change, TestCluster& cluster) {
  cluster.SpoilSrus([](const auto&) { return Slow(absl::Milliseconds(1)); });
  const auto stream = cluster.reader().Open("data", std::nullopt);
  std::atomic<bool> done = false;
  std::thread changer([&] {
    for (int64_t bytes = 1; !done; bytes = bytes * 3 % 65537) {
      change(bytes);
      std::this_thread::yield();
    }
  });
  const auto result = testing::Drain(*stream);
  done = true;
  changer.join();
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(result.data == cluster.source());
}

TEST(LinkTest, ABudgetThatShrinksAndGrowsDuringAReadLosesNothing) {
  TestCluster cluster({.workers = 4, .file_bytes = 400000});
  ExpectReadWhile([&](int64_t budget) { EXPECT_TRUE(cluster.link().SetBudget(budget).ok()); }, cluster);
}

std::map<std::string, double> Gauges(const Link& link) {
  std::map<std::string, double> gauges;
  for (const auto& family : link.gauges().Collect()) gauges[family.name] = family.metric.front().gauge.value;
  return gauges;
}

TEST(LinkReconfigureTest, AnotherBufferIsAnotherBudget) {
  const auto link = Link::Create(LinkProfile{});
  ASSERT_TRUE(link.ok());
  const LinkProfile larger{.capacity_bytes_per_second = 1e9, .buffer_bytes = 100'000};
  ASSERT_TRUE((*link)->Reconfigure({.schedule = {.profile = larger}}).ok());
  EXPECT_EQ((*link)->State().budget_bytes, 100'000);
  EXPECT_EQ((*link)->schedule_options().profile, larger);
  const auto gauges = Gauges(**link);
  EXPECT_EQ(gauges.at("sluice_budget_limit_bytes"), 4 << 20);
  EXPECT_EQ(gauges.at("sluice_link_capacity_bytes_per_second"), 1e9);
}

TEST(LinkReconfigureTest, OtherBoundsHoldTheBudgetWhereItIs) {
  const auto link = Link::Create(LinkProfile{});
  ASSERT_TRUE(link.ok());
  ASSERT_TRUE((*link)->Reconfigure({.budget = {.floor_bytes = 5000}}).ok());
  EXPECT_EQ((*link)->State().budget_bytes, 32768);
  EXPECT_EQ(Gauges(**link).at("sluice_budget_floor_bytes"), 5000);
  ASSERT_TRUE((*link)->Reconfigure({.budget = {.limit_bytes = 20000}}).ok());
  EXPECT_EQ((*link)->State().budget_bytes, 20000);
  ASSERT_TRUE((*link)->Reconfigure({.schedule = {.budget_bytes = 7000}}).ok());
  EXPECT_EQ((*link)->State().budget_bytes, 7000);
  EXPECT_EQ(Gauges(**link).at("sluice_budget_limit_bytes"), 7000) << "fixed";
}

TEST(LinkReconfigureTest, RefusesWhatCannotChangeAndChangesNothing) {
  const auto link = Link::Create(LinkProfile{});
  ASSERT_TRUE(link.ok());
  const auto expect_refused = [&](Link::Options options, const std::string& field) {
    options.schedule.profile.buffer_bytes = 2000;
    const absl::Status status = (*link)->Reconfigure(std::move(options));
    EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(std::string(status.message()), HasSubstr(field));
    EXPECT_EQ((*link)->State().budget_bytes, 32768);
    EXPECT_EQ((*link)->schedule_options().profile, LinkProfile{});
  };
  expect_refused({.schedule = {.stall_timeout = absl::Seconds(1)}}, "stall_timeout");
  expect_refused({.inline_callbacks = true}, "inline_callbacks");
  expect_refused({.callback_threads = 2}, "callback_threads");
  expect_refused({.watch_connections = false}, "watch_connections");
  expect_refused({.registry = std::make_shared<prometheus::Registry>()}, "registry");
  expect_refused({.schedule = {.queue_limit = 0}}, "queue_limit");
}

TEST(LinkReconfigureTest, ALinkThatChangesAllTheTimeLosesNothing) {
  for (const SchedulePolicy policy : {SchedulePolicy::kGrants, SchedulePolicy::kRolling, SchedulePolicy::kBatches}) {
    TestCluster cluster({.workers = 4, .file_bytes = 400000, .schedule = {.policy = policy}});
    const auto reconfigure = [&](int64_t bytes) {
      const int64_t buffer = std::max(bytes, LinkProfile{}.frame_bytes);
      const LinkProfile profile{.capacity_bytes_per_second = 1e6 + 1e4 * static_cast<double>(buffer),
                                .buffer_bytes = buffer};
      EXPECT_TRUE(cluster.link().Reconfigure({.schedule = {.profile = profile, .policy = policy}}).ok());
    };
    ExpectReadWhile(reconfigure, cluster);
  }
}

constexpr SchedulePolicy kPolicies[] = {SchedulePolicy::kUnscheduled, SchedulePolicy::kGrants, SchedulePolicy::kRolling,
                                        SchedulePolicy::kBatches};

TEST(LinkReconfigureTest, APolicyThatChangesAllTheTimeLosesNothing) {
  TestCluster cluster({.workers = 4, .file_bytes = 400000});
  size_t changes = 0;
  const auto reconfigure = [&](int64_t bytes) {
    const SchedulePolicy policy = kPolicies[static_cast<size_t>(bytes) % std::size(kPolicies)];
    EXPECT_TRUE(cluster.link().Reconfigure({.schedule = {.policy = policy}}).ok());
    ++changes;
  };
  ExpectReadWhile(reconfigure, cluster);
  EXPECT_GT(changes, std::size(kPolicies));
  ASSERT_TRUE(cluster.link().Reconfigure({}).ok());
  EXPECT_EQ(cluster.link().State().in_flight_bytes, 0);
}

TEST(LinkReconfigureTest, AScheduleThatIsSwitchedOffAndOnHasItsBudgetAgain) {
  const auto link = Link::Create(LinkProfile{});
  ASSERT_TRUE(link.ok());
  for (const SchedulePolicy policy : kPolicies) {
    ASSERT_TRUE((*link)->Reconfigure({.schedule = {.policy = policy}}).ok());
    EXPECT_EQ((*link)->schedule_options().policy, policy);
    if (policy == SchedulePolicy::kUnscheduled) continue;
    EXPECT_EQ((*link)->State().budget_bytes, 32768);
    EXPECT_LT(Gauges(**link).at("sluice_budget_floor_bytes"), 32768) << "it adapts";
  }
}

}  // namespace
}  // namespace sluice
