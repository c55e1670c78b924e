#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "lib/link/link_monitor.h"
#include "tests/unit/link/virtual_link_fixture.h"

// Links that differ from their profile, in virtual time. The network delays, and carries any rate.
namespace sluice::testing {
namespace {

using std::chrono_literals::operator""s;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LinkMonitorProfileTest : public VirtualLinkTest {
 protected:
  static constexpr int64_t kBuffer = 12 << 10;  // 60 MB/s, for a round trip of 200 us

  // Starts 16 workers that always have a request for 100 KB.
  void Start(double told_bytes_per_second) {
    ScheduleOptions options;
    options.profile.buffer_bytes = kBuffer;
    options.profile.capacity_bytes_per_second = told_bytes_per_second;
    StartLink(options);
    const BudgetBounds bounds{.floor_bytes = kBuffer,
                              .start_bytes = kBuffer,
                              .reference_bytes = kBuffer,
                              .limit_bytes = kBuffer,
                              .capacity_bytes_per_second = told_bytes_per_second};
    executor_.Turn([&] {
      monitor_ = std::make_unique<LinkMonitor>(
          *loop_, bounds, true, nullptr, nullptr,
          [this](const ProfileMismatch& mismatch) { mismatches_.emplace_back(mismatch.fact); });
    });
    for (int i = 0; i < 16; ++i) {
      Serve(absl::StrCat("10.0.0.", i, ":1"), [](auto& call) { call.Answer(std::string(100'000, 'x')); });
    }
    on_ended_ = [this](size_t tag) {
      calls_[tag].messages = {};
      if (!stopped_) executor_.After({}, [this, tag] { AskAgain(tag % servers_.size()); });
    };
    for (size_t i = 0; i < servers_.size(); ++i) executor_.Turn([&] { AskAgain(i); });
  }
  void TearDown() override {
    stopped_ = true;
    monitor_.reset();
    VirtualLinkTest::TearDown();
  }
  LinkGauges Gauges() const {
    LinkGauges gauges;
    monitor_->FillGauges(gauges);
    return gauges;
  }

  std::unique_ptr<LinkMonitor> monitor_;
  std::vector<std::string> mismatches_;

 private:
  void AskAgain(size_t worker) { AskHere(servers_[worker]->address(), 1); }

  bool stopped_ = false;
};

TEST_F(LinkMonitorProfileTest, ALinkThatIsFasterThanToldIsSeen) {
  Start(10e6);
  EXPECT_EQ(Gauges().measured_capacity_bytes_per_second, 0);
  executor_.RunFor(7s);
  EXPECT_THAT(mismatches_, ElementsAre("capacity"));
  EXPECT_TRUE(Gauges().capacity_contradicted);
  EXPECT_GT(Gauges().measured_capacity_bytes_per_second, 30e6);
}

TEST_F(LinkMonitorProfileTest, ALinkWhoseBudgetIsItsLimitContradictsNothing) {
  Start(125e6);
  executor_.RunFor(7s);
  EXPECT_THAT(mismatches_, IsEmpty());
  EXPECT_FALSE(Gauges().capacity_contradicted);
}

}  // namespace
}  // namespace sluice::testing
