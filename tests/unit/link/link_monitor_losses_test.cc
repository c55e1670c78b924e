#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "lib/link/link_monitor.h"
#include "tests/unit/link/virtual_link_fixture.h"

// Attribution of losses, in virtual time: the budget reacts to losses of the link, not to pauses of workers.
namespace sluice::testing {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using ::testing::ElementsAre;
using ::testing::SizeIs;
using Pause = VirtualWorker::Pause;

class LinkMonitorLossesTest : public VirtualLinkTest {
 protected:
  static constexpr int64_t kBuffer = 64 << 10;
  static constexpr size_t kResponseBytes = 100'000;

  // Starts a link of 1 Gbit/s, with workers that receive a request for 100 KB again and again, as streams or not.
  void Start(size_t workers, bool streams = false) {
    ScheduleOptions options;
    options.profile.buffer_bytes = kBuffer;
    StartLink(options);
    monitor_ = std::make_unique<LinkMonitor>(
        *loop_,
        BudgetBounds{.floor_bytes = 12 << 10,
                     .start_bytes = kBuffer,
                     .reference_bytes = kBuffer,
                     .limit_bytes = kBuffer,
                     .capacity_bytes_per_second = 125e6},
        true, nullptr, [this](const auto& changes) {
          for (const WorkerFaultChange& change : changes) {
            faults_.push_back(absl::StrCat(change.address, change.began ? " is " : " was ",
                                           std::string(WorkerFaultName(change.fault))));
          }
        });
    for (size_t i = 0; i < workers; ++i) {
      Serve(absl::StrCat("10.0.0.", i, ":1"), [](auto& call) { call.Answer(std::string(kResponseBytes, 'x')); });
    }
    streams_ = streams;
    on_ended_ = [this](size_t tag) {
      calls_[tag].messages = {};  // of 20,000 calls
      if (!stopped_) executor_.After(5ms, [this, tag] { AskAgain(worker_of_.at(tag)); });
    };
    for (size_t i = 0; i < workers; ++i) executor_.Turn([&] { AskAgain(i); });
    executor_.RunFor(1s);
    ASSERT_EQ(budget(), kBuffer);
  }
  void TearDown() override {
    stopped_ = true;
    monitor_.reset();
    VirtualLinkTest::TearDown();
  }

  // Pauses each worker as soon as it owes bytes.
  void PauseFor(const std::vector<size_t>& workers, Pause pause, TimePoint::duration time) {
    for (const size_t worker : workers) {
      ASSERT_TRUE(executor_.RunUntil([&] { return loop_->schedule().Load(worker + 1).owing_calls > 0; }, 1s));
      servers_[worker]->SetPause(pause);
    }
    executor_.RunFor(time);
    for (const size_t worker : workers) executor_.Turn([&] { servers_[worker]->SetPause(Pause::kNone); });
    executor_.RunFor(2s - time);
  }

  int64_t budget() const { return loop_->schedule().State().budget_bytes; }
  double Counter(const std::string& name, const std::string& label) const {
    for (const auto& family : registry_.Collect()) {
      if (family.name != name) continue;
      for (const auto& metric : family.metric) {
        if (metric.label.at(0).value == label) return metric.counter.value;
      }
    }
    return -1;
  }
  double timeouts() const { return Counter("sluice_timeouts_total", "tcp_rto"); }
  double losses(const std::string& evidence) const { return Counter("sluice_inferred_losses_total", evidence); }

  std::unique_ptr<LinkMonitor> monitor_;
  std::vector<std::string> faults_;  // changes of them

 private:
  void AskAgain(size_t worker) {
    worker_of_.push_back(worker);
    AskHere(servers_[worker]->address(), 1, {.response_bytes = 1000, .server_streaming = streams_});
  }

  bool streams_ = false;
  bool stopped_ = false;
  std::vector<size_t> worker_of_;  // by tag
};

// A proxy treats all calls as streams; the library treats only streams as streams.
class LinkMonitorPausesTest : public LinkMonitorLossesTest, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Of, LinkMonitorPausesTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Streams" : "UnaryCalls"; });

TEST_P(LinkMonitorPausesTest, ThatAreAcknowledgedNeverShrinkTheBudget) {
  Start(8, GetParam());
  for (int pause = 0; pause < 3; ++pause) PauseFor({0}, Pause::kProcess, 250ms);
  PauseFor({0, 1, 2, 3}, Pause::kProcess, 250ms);
  EXPECT_EQ(budget(), kBuffer);
  EXPECT_EQ(timeouts(), 7) << "the last packets of a response may have been lost";
  EXPECT_EQ(losses("pause"), 7);
  EXPECT_EQ(losses("silence"), 0);
}

TEST_P(LinkMonitorPausesTest, ThatAreShorterThanATimeoutAreNone) {
  Start(8, GetParam());
  for (int pause = 0; pause < 3; ++pause) PauseFor({0}, Pause::kProcess, 180ms);
  EXPECT_EQ(timeouts(), 0);
}

TEST_P(LinkMonitorPausesTest, ThatAreNotAcknowledgedAreLosses) {
  Start(8, GetParam());
  PauseFor({0, 1}, Pause::kHost, 250ms);
  EXPECT_EQ(timeouts(), 2);
  EXPECT_EQ(losses("silence"), 2);
  EXPECT_EQ(losses("pause"), 0);
}

TEST_F(LinkMonitorLossesTest, NoPauseOfOneHostShrinksTheBudget) {
  Start(8);
  for (int pause = 0; pause < 6; ++pause) PauseFor({0}, Pause::kHost, 250ms);
  EXPECT_EQ(budget(), kBuffer);
  EXPECT_EQ(timeouts(), 6);
}

TEST_F(LinkMonitorLossesTest, LossesOfTwoWorkersHalveTheBudget) {
  Start(8);
  PauseFor({0, 1}, Pause::kHost, 250ms);
  EXPECT_EQ(budget(), kBuffer / 2);
  EXPECT_EQ(timeouts(), 2);
}

TEST_F(LinkMonitorLossesTest, LossesOfTheOnlyWorkerHalveTheBudget) {
  Start(1);
  PauseFor({0}, Pause::kHost, 250ms);
  EXPECT_EQ(budget(), kBuffer / 2);
}

TEST_F(LinkMonitorLossesTest, AWorkerThatPausesIsNamedUntilItIsWellForTenSeconds) {
  Start(2);
  PauseFor({1}, Pause::kProcess, 250ms);
  PauseFor({1}, Pause::kProcess, 250ms);
  EXPECT_THAT(faults_, ElementsAre("10.0.0.1:1 is paused"));
  executor_.RunFor(9s);
  EXPECT_THAT(faults_, ElementsAre("10.0.0.1:1 is paused", "10.0.0.1:1 was paused"));
}

TEST_F(LinkMonitorLossesTest, AWorkerThatAnswersNothingByTheDeadlineIsHung) {
  Start(2);
  VirtualWorker& silent = Serve("10.0.0.2:1", nullptr);
  Connect(silent.address());
  on_ended_ = nullptr;
  for (const size_t hung : {0, 1}) {
    const size_t tag = Ask(silent.address());
    ASSERT_TRUE(AwaitCalls(silent, hung + 1));
    Cancel(tag, absl::DeadlineExceededError("the deadline passed"));
    executor_.RunFor(2s);
    EXPECT_THAT(faults_, SizeIs(hung)) << "one call may be hard to answer";
  }
  EXPECT_THAT(faults_, ElementsAre("10.0.0.2:1 is hung"));
}

}  // namespace
}  // namespace sluice::testing
