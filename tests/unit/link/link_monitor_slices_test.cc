#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/link/link_monitor.h"
#include "tests/unit/link/virtual_link_fixture.h"

// A look at many sockets takes many turns of the link's thread, which grants nothing during such a turn.
namespace sluice::testing {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""us;
using std::chrono_literals::operator""s;

class LinkMonitorSlicesTest : public VirtualLinkTest {
 protected:
  // Starts workers that receive a request, and do not respond.
  void Start(size_t workers) {
    StartLink();
    for (size_t i = 0; i < workers; ++i) Ask(Serve(absl::StrCat("10.0.0.", i, ":1"), nullptr).address());
    executor_.RunFor(1s);
    const BudgetBounds bounds{.floor_bytes = kAmpleBytes,
                              .start_bytes = kAmpleBytes,
                              .reference_bytes = kAmpleBytes,
                              .limit_bytes = kAmpleBytes,
                              .capacity_bytes_per_second = 125e6};
    executor_.Turn([&] { monitor_ = std::make_unique<LinkMonitor>(*loop_, bounds, true, nullptr, nullptr); });
  }
  void TearDown() override {
    monitor_.reset();
    VirtualLinkTest::TearDown();
  }
  // Returns the number of sockets that each turn since `since` looked at.
  std::vector<size_t> Slices(TimePoint since) const {
    std::vector<size_t> slices;
    for (auto next = executor_.tcp_infos().lower_bound(since); next != executor_.tcp_infos().end(); ++next)
      slices.push_back(next->second);
    return slices;
  }
  int64_t connections() const {
    LinkGauges gauges;
    monitor_->FillGauges(gauges);
    return gauges.connections;
  }

  std::unique_ptr<LinkMonitor> monitor_;
};

TEST_F(LinkMonitorSlicesTest, AHundredSocketsAreLookedAtInOneTurn) {
  Start(250);
  const TimePoint start = executor_.Now();
  executor_.RunFor(100ms + 1500us);
  EXPECT_THAT(Slices(start), ::testing::ElementsAre(100, 100));
  EXPECT_EQ(connections(), 0) << "the look has not ended";
  executor_.RunFor(90ms);
  EXPECT_THAT(Slices(start), ::testing::ElementsAre(100, 100, 50));
  EXPECT_EQ(connections(), 250);
  executor_.RunFor(100ms);
  EXPECT_THAT(Slices(start), ::testing::ElementsAre(100, 100, 50, 100, 100, 50)) << "100 ms after the first look began";
}

TEST_F(LinkMonitorSlicesTest, FewSocketsAreOneSlice) {
  Start(100);
  const TimePoint start = executor_.Now();
  executor_.RunFor(399ms);
  EXPECT_THAT(Slices(start), ::testing::ElementsAre(100, 100, 100));
}

TEST_F(LinkMonitorSlicesTest, WorkersMayComeAndGoDuringALook) {
  Start(250);
  const TimePoint start = executor_.Now();
  executor_.RunFor(100ms);
  executor_.Turn([&] {
    for (size_t i = 0; i < 250; i += 2) Cancel(i);
  });
  executor_.Turn([&] {
    for (size_t i = 0; i < 250; i += 2) workers_.erase(absl::StrCat("10.0.0.", i, ":1"));
  });
  Connect(Serve("9.0.0.0:1", nullptr).address());
  executor_.RunFor(99ms);
  size_t looked = 0;
  for (const size_t slice : Slices(start)) looked += slice;
  EXPECT_EQ(connections(), looked);
  EXPECT_GE(looked, 175) << "a hundred, and half of the others";
  executor_.RunFor(100ms);
  EXPECT_EQ(connections(), 126);
}

}  // namespace
}  // namespace sluice::testing
