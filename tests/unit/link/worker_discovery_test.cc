#include "lib/link/worker_discovery.h"

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/registry.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A name server in virtual time. It responds when the test calls AnswerAll, never within the query.
class NameServer final : public Executor {
 public:
  void Set(const std::string& target, const std::vector<std::string>& addresses) {
    std::vector<WorkerAddress>& known = known_[target];
    known.clear();
    for (const std::string& address : addresses) known.push_back({address});
  }
  void Forget(const std::string& target) { known_.erase(target); }
  void SetFailing(bool failing) { failing_ = failing; }
  void SetSilent(bool silent) { silent_ = silent; }

  // Responds to all queries, including new ones, until none is left.
  void AnswerAll() {
    while (!silent_ && !questions_.empty()) {
      const auto question = std::exchange(questions_, {}).front();
      if (const auto asked = question.second.lock()) {
        const OnResolved answer = *asked;  // the callback may destroy the query
        answer(AnswerTo(question.first));
      }
    }
  }
  void Pass(std::chrono::nanoseconds time) { now_ += time; }
  const std::vector<std::string>& asked() const { return asked_; }
  void ForgetAsked() { asked_.clear(); }

  TimePoint Now() const override { return now_; }
  double Random() override { return 0.5; }
  std::shared_ptr<void> Resolve(const std::string& target, OnResolved on_resolved) override {
    EXPECT_THAT(questions_, IsEmpty()) << "one question at a time";
    asked_.push_back(target);
    auto question = std::make_shared<OnResolved>(std::move(on_resolved));
    questions_.emplace_back(target, question);
    return question;
  }

  void Post(std::function<void()>) override { FAIL() << "nothing is posted"; }
  void SetEndOfTurn(std::function<void()>) override { FAIL() << "nothing is written"; }
  void SetTimer(TimePoint, std::function<void()>) override { FAIL() << "timers are those of the queue"; }
  std::unique_ptr<StreamSocket> Connect(const WorkerAddress&, const ConnectOptions&, StreamSocketEvents&) override {
    ADD_FAILURE() << "nobody is connected to";
    return nullptr;
  }

 private:
  absl::StatusOr<std::vector<WorkerAddress>> AnswerTo(const std::string& target) const {
    if (failing_) return absl::UnavailableError("look up: the name server is away");
    const auto found = known_.find(target);
    if (found == known_.end()) return absl::NotFoundError("look up: no such name");
    return found->second;
  }

  TimePoint now_;
  std::map<std::string, std::vector<WorkerAddress>> known_;
  bool failing_ = false;
  bool silent_ = false;
  std::vector<std::pair<std::string, std::weak_ptr<OnResolved>>> questions_;
  std::vector<std::string> asked_;
};

class WorkerDiscoveryTest : public ::testing::Test {
 protected:
  void Follow(const std::vector<std::string>& entries) {
    const absl::StatusOr<WorkerList> list = ParseWorkerList(entries);
    ASSERT_TRUE(list.ok()) << list.status();
    discovery_ = std::make_unique<WorkerDiscovery>(
        names_, timers_, metrics_,
        WorkerDiscovery::Options{
            .list = *list,
            .on_workers = [this](std::vector<std::string> workers) { told_.push_back(std::move(workers)); },
            .on_state = [this](const absl::Status& state) { states_.push_back(state); }});
    names_.AnswerAll();
  }
  // Runs the next look. No query is sent before its time.
  void Look() {
    names_.Pass(WorkerDiscovery::kLookEvery - std::chrono::nanoseconds(1));
    timers_.RunDue(names_.Now());
    names_.ForgetAsked();
    names_.AnswerAll();
    EXPECT_THAT(names_.asked(), IsEmpty());
    names_.Pass(std::chrono::nanoseconds(1));
    timers_.RunDue(names_.Now());
    names_.AnswerAll();
  }
  // Returns the lists since the last call.
  std::vector<std::vector<std::string>> Told() { return std::exchange(told_, {}); }
  std::vector<absl::Status> States() { return std::exchange(states_, {}); }
  double Failures() {
    for (const prometheus::MetricFamily& family : registry_.Collect()) {
      if (family.name == "sluice_worker_lookup_failures_total") return family.metric.at(0).counter.value;
    }
    return -1;
  }

  NameServer names_;
  TimerQueue timers_;
  prometheus::Registry registry_;
  LinkMetrics metrics_{registry_};
  std::vector<std::vector<std::string>> told_;
  std::vector<absl::Status> states_;
  std::unique_ptr<WorkerDiscovery> discovery_;
};

TEST_F(WorkerDiscoveryTest, AnOpenRangeGrowsWithTheNamesAndDoesNotShrink) {
  names_.Set("w-0:7", {"10.0.0.1:7"});
  Follow({"first:1", "w-{0..}:7"});
  EXPECT_THAT(Told(), ElementsAre(ElementsAre("first:1", "w-0:7")));
  EXPECT_THAT(names_.asked(), ElementsAre("w-0:7", "w-1:7"));
  Look();
  EXPECT_THAT(Told(), IsEmpty());
  EXPECT_THAT(names_.asked(), ElementsAre("w-1:7")) << "what is known is not asked for again";
  names_.Forget("w-0:7");
  names_.Set("w-1:7", {"10.0.0.2:7"});
  names_.Set("w-2:7", {"10.0.0.3:7"});
  Look();
  EXPECT_THAT(Told(), ElementsAre(ElementsAre("first:1", "w-0:7", "w-1:7", "w-2:7")));
  EXPECT_THAT(States(), IsEmpty());
  EXPECT_EQ(Failures(), 0) << "a name that is not there yet is the end of the range";
}

TEST_F(WorkerDiscoveryTest, TheFirstLookIsToldAlsoWhereNothingWasFound) {
  Follow({"w-{0..}:7"});
  EXPECT_THAT(Told(), ElementsAre(IsEmpty()));
  Look();
  EXPECT_THAT(Told(), IsEmpty());
}

TEST_F(WorkerDiscoveryTest, TheMembersOfANameComeAndGo) {
  names_.Set("stores:7", {"10.0.0.2:7", "10.0.0.1:7"});
  Follow({"dns+stores:7"});
  EXPECT_THAT(Told(), ElementsAre(ElementsAre("10.0.0.1:7", "10.0.0.2:7")));
  names_.Set("stores:7", {"10.0.0.1:7", "10.0.0.2:7"});
  Look();
  EXPECT_THAT(Told(), IsEmpty()) << "name servers turn the order";
  names_.Set("stores:7", {"10.0.0.3:7", "10.0.0.2:7"});
  Look();
  EXPECT_THAT(Told(), ElementsAre(ElementsAre("10.0.0.2:7", "10.0.0.3:7")));
  EXPECT_THAT(States(), IsEmpty());
}

TEST_F(WorkerDiscoveryTest, TheFixedWorkersAndTheRangeKeepTheirNumbersWhileMembersComeAndGo) {
  names_.Set("stores:7", {"10.0.0.1:7"});
  names_.Set("others:8", {"10.1.0.1:8"});
  names_.Set("w-0:7", {"10.2.0.1:7"});
  Follow({"dns+stores:7", "a:1", "dns+others:8", "w-{0..}:7"});
  EXPECT_THAT(Told(), ElementsAre(ElementsAre("a:1", "w-0:7", "10.0.0.1:7", "10.1.0.1:8")));
  names_.Set("stores:7", {"10.0.0.4:7", "10.0.0.5:7"});
  Look();
  EXPECT_THAT(Told(), ElementsAre(ElementsAre("a:1", "w-0:7", "10.0.0.4:7", "10.0.0.5:7", "10.1.0.1:8")));
}

TEST_F(WorkerDiscoveryTest, AWorkerWithAddressesOfBothFamiliesIsOneWorker) {
  names_.Set("stores:7", {"[fd00::2]:7", "10.0.0.2:7", "[fd00::1]:7", "10.0.0.1:7"});
  Follow({"dns+stores:7"});
  EXPECT_THAT(Told(), ElementsAre(ElementsAre("[fd00::1]:7", "[fd00::2]:7")));
}

TEST_F(WorkerDiscoveryTest, WhatCannotBeLookedUpStaysAsItWas) {
  names_.Set("stores:7", {"10.0.0.1:7"});
  names_.Set("w-0:7", {"10.2.0.1:7"});
  Follow({"dns+stores:7", "w-{0..}:7"});
  EXPECT_THAT(Told(), SizeIs(1));
  names_.SetFailing(true);
  Look();
  Look();
  EXPECT_THAT(Told(), IsEmpty());
  const std::vector<absl::Status> states = States();
  ASSERT_THAT(states, SizeIs(1)) << "told once";
  EXPECT_TRUE(absl::IsUnavailable(states[0]));
  EXPECT_EQ(states[0].message(), "workers: \"dns+stores:7\": look up: the name server is away");
  EXPECT_EQ(Failures(), 4) << "each is counted";
  names_.SetFailing(false);
  names_.Set("stores:7", {"10.0.0.1:7", "10.0.0.2:7"});
  Look();
  EXPECT_THAT(Told(), ElementsAre(ElementsAre("w-0:7", "10.0.0.1:7", "10.0.0.2:7")));
  EXPECT_THAT(States(), ElementsAre(absl::OkStatus()));
  EXPECT_EQ(Failures(), 4);
}

TEST_F(WorkerDiscoveryTest, ANameThatIsGoneKeepsItsLastMembers) {
  names_.Set("stores:7", {"10.0.0.1:7"});
  names_.Set("others:8", {"10.1.0.1:8"});
  Follow({"dns+stores:7", "dns+others:8"});
  EXPECT_THAT(Told(), SizeIs(1));
  names_.Forget("stores:7");
  names_.Set("others:8", {"10.1.0.2:8"});
  Look();
  EXPECT_THAT(Told(), ElementsAre(ElementsAre("10.0.0.1:7", "10.1.0.2:8")));
  names_.Set("stores:7", {});
  Look();
  EXPECT_THAT(Told(), IsEmpty());
  const std::vector<absl::Status> states = States();
  ASSERT_THAT(states, SizeIs(2));
  EXPECT_THAT(std::string(states[0].message()), AllOf(HasSubstr("\"dns+stores:7\""), HasSubstr("no such name")));
  EXPECT_THAT(std::string(states[1].message()), AllOf(HasSubstr("\"dns+stores:7\""), HasSubstr("has no address")));
  EXPECT_EQ(Failures(), 2);
}

TEST_F(WorkerDiscoveryTest, AFailureIsToldBeforeTheWorkersThatAreMissing) {
  names_.SetFailing(true);
  size_t states_before = 0;
  discovery_ = std::make_unique<WorkerDiscovery>(
      names_, timers_, metrics_,
      WorkerDiscovery::Options{.list = {.fixed = {}, .open = {}, .names = {"stores:7"}},
                               .on_workers = [&](const auto&) { states_before = states_.size(); },
                               .on_state = [&](const absl::Status& state) { states_.push_back(state); }});
  names_.AnswerAll();
  EXPECT_EQ(states_before, 1u);
}

TEST_F(WorkerDiscoveryTest, ARangeEndsAtTheMostWorkersOfAList) {
  for (size_t i = 0; i <= 10; ++i) names_.Set(absl::StrCat("w-", i, ":7"), {"10.0.0.1:7"});
  Follow({absl::StrCat("a:{1..", kMaxListedWorkers - 6, "}"), "b:{1..3}", "w-{0..}:7"});
  ASSERT_THAT(told_, SizeIs(1));
  EXPECT_THAT(told_[0], SizeIs(kMaxListedWorkers));
  EXPECT_EQ(told_[0].back(), "w-2:7");
  Look();
  EXPECT_THAT(names_.asked(), IsEmpty());
}

TEST_F(WorkerDiscoveryTest, ALookThatTakesLongIsNotJoinedByAnother) {
  names_.SetSilent(true);
  Follow({"dns+stores:7"});
  names_.Pass(10 * WorkerDiscovery::kLookEvery);
  timers_.RunDue(names_.Now());
  EXPECT_THAT(names_.asked(), SizeIs(1));
  EXPECT_THAT(Told(), IsEmpty());
  names_.SetSilent(false);
  names_.Set("stores:7", {"10.0.0.1:7"});
  names_.AnswerAll();
  EXPECT_THAT(Told(), ElementsAre(ElementsAre("10.0.0.1:7")));
}

TEST_F(WorkerDiscoveryTest, NothingIsToldAfterItIsGone) {
  names_.SetSilent(true);
  Follow({"dns+stores:7"});
  discovery_.reset();
  names_.SetSilent(false);
  names_.AnswerAll();
  EXPECT_THAT(Told(), IsEmpty());
  Follow({"dns+stores:7"});
  EXPECT_THAT(Told(), SizeIs(1));
  discovery_.reset();
  EXPECT_EQ(timers_.next(), TimePoint::max());
}

}  // namespace
}  // namespace sluice
