#include "lib/scheduling/profile_check.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using absl::Microseconds;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kTold = 125e6;  // 1 Gbit/s

// Ten observations a second of a link of 1 Gbit/s, whose budget has ample room.
class ProfileCheckTest : public ::testing::Test {
 protected:
  struct Look {
    double rate = kTold;    // while calls waited
    double backlogged = 1;  // the share of the time in which they did
    bool lost = false;
  };
  // Looks for this long. Returns the facts that were contradicted.
  std::vector<std::string> Run(std::chrono::milliseconds time, const Look& look) {
    std::vector<std::string> facts;
    for (; time > 0ms; time -= 100ms) {
      now_ += 100ms;
      const auto backlogged = std::chrono::duration_cast<std::chrono::nanoseconds>(look.backlogged * 100ms);
      const BudgetObservation seen{
          .now = now_,
          .elapsed = 100ms,
          .rto_waits = look.lost ? 1 : 0,
          .backlogged_time = backlogged,
          .backlogged_bytes = static_cast<int64_t>(look.rate * std::chrono::duration<double>(backlogged).count())};
      for (const ProfileMismatch& found : check_.Observe(profile_, seen, budget_bytes_, min_rtt_)) {
        facts.emplace_back(found.fact);
        last_ = found;
      }
    }
    return facts;
  }

  TimePoint now_ = TimePoint() + std::chrono::hours(1);
  LinkProfile profile_;
  int64_t budget_bytes_ = 4 << 20;
  std::optional<absl::Duration> min_rtt_ = Microseconds(100);
  ProfileMismatch last_;
  ProfileCheck check_;
};

TEST_F(ProfileCheckTest, ALinkThatIsAsToldContradictsNothing) {
  EXPECT_EQ(check_.capacity_bytes_per_second(), 0) << "unknown";
  EXPECT_THAT(Run(60s, {}), IsEmpty());
  EXPECT_NEAR(check_.capacity_bytes_per_second(), kTold, 1);
  EXPECT_FALSE(check_.contradicts_capacity());
  EXPECT_FALSE(check_.contradicts_rtt());
}

TEST_F(ProfileCheckTest, ALinkThatIsFasterContradictsItsCapacityOnce) {
  EXPECT_THAT(Run(4900ms, {.rate = 1.2 * kTold}), IsEmpty());
  EXPECT_THAT(Run(60s, {.rate = 1.2 * kTold}), ElementsAre("capacity"));
  EXPECT_EQ(last_.told, kTold);
  EXPECT_NEAR(last_.measured, 1.2 * kTold, 10);
  EXPECT_NEAR(check_.capacity_bytes_per_second(), 1.2 * kTold, 10);
  EXPECT_TRUE(check_.contradicts_capacity());
}

TEST_F(ProfileCheckTest, ALinkThatIsSlowerContradictsItsCapacityWhileNothingIsLost) {
  EXPECT_THAT(Run(60s, {.rate = 0.6 * kTold, .lost = true}), IsEmpty());
  EXPECT_THAT(Run(60s, {.rate = 0.6 * kTold}), ElementsAre("capacity"));
}

TEST_F(ProfileCheckTest, ASmallBudgetExplainsALowRate) {
  budget_bytes_ = 16 << 10;  // 131 us on the link, and 300 us on its way
  min_rtt_ = Microseconds(299);
  EXPECT_THAT(Run(60s, {.rate = 0.3 * kTold}), IsEmpty());
}

TEST_F(ProfileCheckTest, ALeaseExplainsALowRate) {
  budget_bytes_ = 0;
  EXPECT_THAT(Run(60s, {.rate = 0.3 * kTold}), IsEmpty());
}

TEST_F(ProfileCheckTest, OnlyAContinuousBacklogIsMeasured) {
  EXPECT_THAT(Run(60s, {.rate = 2 * kTold, .backlogged = 0.8}), IsEmpty());
  EXPECT_EQ(check_.capacity_bytes_per_second(), 0);
  for (int i = 0; i < 20; ++i) {
    Run(900ms, {.rate = 2 * kTold});
    Run(100ms, {.backlogged = 0});
  }
  EXPECT_EQ(check_.capacity_bytes_per_second(), 0) << "no two windows in a row";
}

// The bytes that waited while the host stood still are read at once.
TEST_F(ProfileCheckTest, OneFastWindowIsNotPlausible) {
  Run(5s, {});
  Run(100ms, {.rate = 10 * kTold});
  EXPECT_THAT(Run(60s, {}), IsEmpty());
  EXPECT_NEAR(check_.capacity_bytes_per_second(), kTold, 1);
}

TEST_F(ProfileCheckTest, TheMeasuredCapacityFollowsASlowerLinkWithinTwentyMinutes) {
  Run(60s, {});
  Run(std::chrono::minutes(21), {.rate = 0.9 * kTold});
  EXPECT_NEAR(check_.capacity_bytes_per_second(), 0.9 * kTold, 1);
}

TEST_F(ProfileCheckTest, ARoundTripThatDiffersLessThanThreefoldIsNotContradicted) {
  min_rtt_ = Microseconds(299);
  EXPECT_THAT(Run(60s, {}), IsEmpty());
  EXPECT_EQ(check_.rtt(), Microseconds(299));
}

// For example the round trips of the few tunnels that are watched while the port is full.
TEST_F(ProfileCheckTest, TheSmallestRoundTripCountsForTenMinutes) {
  Run(1s, {});
  min_rtt_ = absl::Milliseconds(5);
  EXPECT_THAT(Run(std::chrono::minutes(9), {}), IsEmpty());
  EXPECT_EQ(check_.rtt(), Microseconds(100));
  EXPECT_THAT(Run(std::chrono::minutes(12), {}), ElementsAre("rtt"));
}

TEST_F(ProfileCheckTest, ARoundTripThatDiffersThreefoldIsContradicted) {
  min_rtt_ = Microseconds(301);
  EXPECT_THAT(Run(900ms, {}), IsEmpty());
  EXPECT_THAT(Run(60s, {}), ElementsAre("rtt"));
  EXPECT_EQ(last_.told, 100e-6);
  EXPECT_DOUBLE_EQ(last_.measured, 301e-6);
  EXPECT_TRUE(check_.contradicts_rtt());
  EXPECT_FALSE(check_.contradicts_capacity());
}

TEST_F(ProfileCheckTest, ALongRoundTripIsContradictedByAShortOne) {
  profile_.propagation_rtt = absl::Milliseconds(1);
  min_rtt_ = Microseconds(334);
  EXPECT_THAT(Run(60s, {}), IsEmpty());
  min_rtt_ = Microseconds(333);
  EXPECT_THAT(Run(60s, {}), ElementsAre("rtt"));
}

// A test network of 100 Mbit/s: 25 us for a SYN, and 120 us for one full packet.
TEST_F(ProfileCheckTest, ARoundTripOfSmallPacketsContradictsNoShortOne) {
  profile_.propagation_rtt = Microseconds(200);
  min_rtt_ = Microseconds(25);
  EXPECT_THAT(Run(60s, {}), IsEmpty());
}

TEST_F(ProfileCheckTest, AnotherProfileIsJudgedAnew) {
  Run(60s, {.rate = 1.2 * kTold});
  profile_.capacity_bytes_per_second = 1.2 * kTold;
  EXPECT_THAT(Run(100ms, {.rate = 1.2 * kTold}), IsEmpty());
  EXPECT_FALSE(check_.contradicts_capacity());
  EXPECT_THAT(Run(60s, {.rate = 1.2 * kTold}), IsEmpty());
  profile_.capacity_bytes_per_second = kTold;
  EXPECT_THAT(Run(60s, {.rate = 1.2 * kTold}), ElementsAre("capacity"));
}

TEST_F(ProfileCheckTest, AContradictionEndsWithItsEvidence) {
  Run(60s, {.rate = 0.6 * kTold});
  EXPECT_TRUE(check_.contradicts_capacity());
  EXPECT_THAT(Run(60s, {}), IsEmpty());
  EXPECT_FALSE(check_.contradicts_capacity());
  EXPECT_THAT(Run(60s, {.rate = 0.6 * kTold}), IsEmpty()) << "it was reported";
  EXPECT_TRUE(check_.contradicts_capacity());
}

}  // namespace
}  // namespace sluice
