#include "lib/link/schedule_run.h"

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/registry.h"
#include "tests/has_code.h"
#include "tests/unit/link/virtual_executor.h"
#include "tests/unit/telemetry/scrape.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using testing::HasCode;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The schedule of a link with room for one large call at a time.
class ScheduleRunTest : public ::testing::Test {
 protected:
  class Call final : public Scheduled {
   public:
    Call(ScheduleRunTest& test, std::string name) : test_(test), name_(std::move(name)) {}

    std::function<void()> on_send;  // may be null

   private:
    void Send(int64_t) override {
      test_.actions_.push_back("send " + name_);
      if (on_send) on_send();
      test_.actions_.push_back("sent " + name_);
    }
    void Grant(int64_t bytes) override { test_.actions_.push_back(absl::StrCat("grant ", name_, " ", bytes)); }
    void EndUnsent(absl::Status why) override {
      test_.actions_.push_back(absl::StrCat("end ", name_, " ", absl::StatusCodeToString(why.code())));
    }
    void Abort() override { test_.actions_.push_back("abort " + name_); }

    ScheduleRunTest& test_;
    const std::string name_;
  };

  static ScheduleOptions Rolling() {
    ScheduleOptions options;
    options.policy = SchedulePolicy::kRolling;
    options.profile.buffer_bytes = 32 * 1024;
    return options;
  }
  static CallRequest RequestOf(Call& call) { return {.response_bytes = 25'000, .tag = call.tag()}; }
  BlockId Submit(std::vector<Call*> calls, std::chrono::seconds timeout = std::chrono::seconds(1)) {
    std::vector<CallRequest> requests;
    for (Call* call : calls) requests.push_back(RequestOf(*call));
    BlockId block = 0;
    const absl::Status submitted = run_.Submit(requests, executor_.Now() + timeout, block);
    EXPECT_TRUE(submitted.ok()) << submitted;
    return block;
  }

  prometheus::Registry registry_;
  LinkMetrics metrics_{registry_};
  testing::VirtualExecutor executor_;
  ScheduleRun run_{executor_, Rolling(), metrics_};
  std::vector<std::string> actions_;
  Call a_{*this, "a"};
  Call b_{*this, "b"};
  Call c_{*this, "c"};
};

TEST_F(ScheduleRunTest, ACallThatEndsMakesRoomForTheNext) {
  Submit({&a_, &b_});
  EXPECT_THAT(actions_, ElementsAre("send a", "sent a"));
  run_.OnFinished(a_.id(), CallEnd::kArrived);
  EXPECT_THAT(actions_, ElementsAre("send a", "sent a", "send b", "sent b"));
}

// The call that makes an event is not called again before it has returned.
TEST_F(ScheduleRunTest, TheActionsOfAnEventWithinAnActionComeAfterIt) {
  a_.on_send = [this] { run_.OnFinished(a_.id(), CallEnd::kArrived); };
  b_.on_send = [this] {
    BlockId block = 0;
    EXPECT_TRUE(run_.SubmitAhead({.response_bytes = 192, .tag = c_.tag()}, TimePoint::max(), block).ok());
    EXPECT_NE(block, 0U);
    EXPECT_NE(c_.id(), CallId()) << "known before it is sent";
  };
  Submit({&a_, &b_});
  EXPECT_THAT(actions_, ElementsAre("send a", "sent a", "send b", "sent b", "send c", "sent c"));
}

TEST_F(ScheduleRunTest, AnAddedCallJoinsItsBlock) {
  const BlockId block = Submit({&a_});
  EXPECT_TRUE(run_.Add(block, RequestOf(b_)).ok());
  run_.Cancel(block);
  EXPECT_THAT(actions_, ElementsAre("send a", "sent a", "abort a", "end b CANCELLED"));
  run_.OnFinished(a_.id(), CallEnd::kArrived);
  EXPECT_THAT(run_.Add(block, RequestOf(c_)), HasCode(absl::StatusCode::kNotFound));
}

TEST_F(ScheduleRunTest, AWaitingCallEndsAtItsDeadline) {
  Submit({&a_}, std::chrono::seconds(60));
  Submit({&b_});
  EXPECT_LE(run_.schedule().NextTimer(), executor_.Now() + std::chrono::seconds(1));
  executor_.RunFor(std::chrono::seconds(1));
  run_.OnTimer(executor_.Now());
  EXPECT_THAT(actions_, ::testing::Contains("end b DEADLINE_EXCEEDED"));
}

TEST_F(ScheduleRunTest, TheLastBlockIsTheOneThatTheScheduleTook) {
  EXPECT_EQ(run_.last_block().calls, 0);
  Submit({&a_, &b_});
  EXPECT_EQ(run_.last_block().calls, 2);
  EXPECT_EQ(run_.last_block().response_bytes, 25'000);
  BlockId block = 0;
  EXPECT_THAT(run_.Submit({}, TimePoint::max(), block), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_TRUE(run_.SubmitAhead({.response_bytes = 192, .tag = c_.tag()}, TimePoint::max(), block).ok());
  EXPECT_EQ(run_.last_block().calls, 2);
}

TEST_F(ScheduleRunTest, DemandIsReportedOnceAfterEvents) {
  std::vector<bool> demands;
  run_.SetDemandWatcher([&demands](const LinkDemand& demand) { demands.push_back(demand.demand_bytes > 0); });
  run_.ReportDemand(executor_.Now());
  EXPECT_THAT(demands, IsEmpty());
  Submit({&a_});
  Submit({&b_});
  run_.ReportDemand(executor_.Now());
  run_.ReportDemand(executor_.Now());
  EXPECT_THAT(demands, ElementsAre(true));
}

TEST_F(ScheduleRunTest, AStoppedRunCarriesOutNothing) {
  Submit({&a_, &b_});
  run_.Stop();
  run_.OnFinished(a_.id(), CallEnd::kArrived);
  EXPECT_THAT(actions_, ElementsAre("send a", "sent a"));
}

TEST_F(ScheduleRunTest, BreachesAreCountedAndReportedOnce) {
  std::vector<std::string> reports;
  run_.SetBreachWatcher([&](const InvariantBreach& breach) {
    reports.push_back(absl::StrCat(std::string(breach.condition), ", ", breach.breaches));
  });
  const std::string metric = "\nsluice_invariant_breaches_total ";
  Breaches breaches(Breaches::Response::kCount);
  run_.ReportBreaches(breaches);
  EXPECT_THAT(ScrapeText({&registry_}), HasSubstr(metric + "0\n"));
  for (int i = 0; i < 3; ++i) SLUICE_HOLDS(breaches, i < 0);
  run_.ReportBreaches(breaches);
  run_.ReportBreaches(breaches);
  EXPECT_THAT(ScrapeText({&registry_}), HasSubstr(metric + "3\n"));
  EXPECT_THAT(reports, ElementsAre("i < 0, 3"));
}

// The constructor of the schedule checks its options, which breaks an invariant from outside.
TEST_F(ScheduleRunTest, BreachesOfTheScheduleAreReportedAfterItsNextEventOrEndADebugBuild) {
  ScheduleOptions invalid = Rolling();
  invalid.queue_limit = 0;
#ifdef NDEBUG
  ScheduleRun run(executor_, invalid, metrics_);
  run.Cancel(0);
  EXPECT_THAT(ScrapeText({&registry_}), HasSubstr("\nsluice_invariant_breaches_total 1\n"));
#else
  EXPECT_DEATH(ScheduleRun(executor_, invalid, metrics_), "link_schedule.cc:[0-9]+: invariant does not hold: options");
#endif
}

}  // namespace
}  // namespace sluice
