#include "lib/link/worker_faults.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string NameOf(WorkerFault fault) {
  return std::string(WorkerFaultName(fault));
}

// Two workers that the link looks at every second.
class WorkerFaultsTest : public ::testing::Test {
 protected:
  using Words = std::vector<std::string>;

  Words Look() {
    now_ += seconds(1);
    const auto is_wanted = [this](const std::string& address) { return address != unwanted_; };
    Words words;
    for (const WorkerFaultChange& change : faults_.Look(now_, workers_, is_wanted)) {
      words.push_back(change.began ? absl::StrCat(change.address, " is ", NameOf(change.fault))
                                   : absl::StrCat(change.address, " was ", NameOf(change.fault), " for ",
                                                  std::chrono::duration_cast<seconds>(change.lasted).count()));
    }
    return words;
  }
  Words Under() const {
    Words words;
    faults_.ForEach([&](const std::string& address, WorkerFault fault) {
      words.push_back(absl::StrCat(address, " ", NameOf(fault)));
    });
    return words;
  }

  WorkerFaults::TimePoint now_{};
  WorkerFaults faults_;
  std::string unwanted_;
  std::vector<WorkerFaults::Sight> workers_ = {{.address = "a:1"}, {.address = "b:1"}};
};

TEST_F(WorkerFaultsTest, HealthyWorkersHaveNone) {
  for (int i = 0; i < 20; ++i) EXPECT_THAT(Look(), IsEmpty());
  EXPECT_THAT(Under(), IsEmpty());
}

TEST_F(WorkerFaultsTest, AWorkerThatIsSlowForAMomentHasNone) {
  for (int i = 0; i < 20; ++i) {
    workers_[0].slow = i % 4 < 3;
    workers_[1].unreachable = i % 3 < 2;
    EXPECT_THAT(Look(), IsEmpty());
  }
}

TEST_F(WorkerFaultsTest, AWorkerThatStaysSlowHasOneUntilItWasFastForTenSeconds) {
  workers_[1].slow = true;
  EXPECT_THAT(Look(), IsEmpty());
  EXPECT_THAT(Look(), IsEmpty());
  EXPECT_THAT(Look(), IsEmpty());
  EXPECT_THAT(Look(), ElementsAre("b:1 is slow"));
  EXPECT_THAT(Under(), ElementsAre("b:1 slow"));
  EXPECT_THAT(Look(), IsEmpty());
  workers_[1].slow = false;
  for (int i = 0; i < 9; ++i) EXPECT_THAT(Look(), IsEmpty());
  EXPECT_THAT(Look(), ElementsAre("b:1 was slow for 14"));
  EXPECT_THAT(Under(), IsEmpty());
}

TEST_F(WorkerFaultsTest, AnEjectionIsAFaultFromItsBeginningToItsEnd) {
  workers_[0].ejected = true;
  EXPECT_THAT(Look(), ElementsAre("a:1 is ejected"));
  EXPECT_THAT(Look(), IsEmpty());
  EXPECT_THAT(Under(), ElementsAre("a:1 ejected"));
  workers_[0].ejected = false;
  EXPECT_THAT(Look(), ElementsAre("a:1 was ejected for 2"));
  EXPECT_THAT(Under(), IsEmpty());
}

TEST_F(WorkerFaultsTest, PausesNowAndThenAreOneFault) {
  for (int i = 0; i < 30; ++i) {
    workers_[0].paused = i % 5 == 0;
    EXPECT_EQ(Look(), i == 0 ? Words{"a:1 is paused"} : Words());
  }
  EXPECT_THAT(Under(), ElementsAre("a:1 paused"));
}

TEST_F(WorkerFaultsTest, AWorkerMayHaveSeveral) {
  workers_[0].hung = workers_[0].stalled = workers_[0].lossy = true;
  EXPECT_THAT(Look(), ElementsAre("a:1 is hung", "a:1 is stalled", "a:1 is lossy"));
}

TEST_F(WorkerFaultsTest, AWorkerThatIsNotWantedAnyMoreHasNone) {
  workers_[0].unreachable = true;
  for (int i = 0; i < 3; ++i) Look();
  EXPECT_THAT(Look(), ElementsAre("a:1 is unreachable"));
  workers_.erase(workers_.begin());
  unwanted_ = "a:1";
  EXPECT_THAT(Look(), ElementsAre("a:1 was unreachable for 4"));
  EXPECT_THAT(Look(), IsEmpty());
}

}  // namespace
}  // namespace sluice
