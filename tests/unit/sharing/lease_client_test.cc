#include "lib/sharing/lease_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/sharing/link_hello.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

LinkDemand Demand(int64_t demand_bytes, int64_t in_flight_bytes, int64_t need_bytes, int64_t limit_bytes) {
  return {.limit_bytes = limit_bytes,
          .demand_bytes = demand_bytes,
          .in_flight_bytes = in_flight_bytes,
          .need_bytes = need_bytes};
}

TEST(IsUrgentTest, BecomingBusyOrIdle) {
  const LinkDemand idle = Demand(0, 0, 0, 5000);
  const LinkDemand busy = Demand(9000, 0, 1000, 5000);
  EXPECT_TRUE(IsUrgent(idle, busy, false));
  EXPECT_TRUE(IsUrgent(busy, idle, false));
  EXPECT_FALSE(IsUrgent(idle, idle, false));
  EXPECT_FALSE(IsUrgent(busy, Demand(8000, 3000, 1000, 5000), false));
}

TEST(IsUrgentTest, AClassThatBecomesBusyOrIdle) {
  LinkDemand reported = Demand(90'000, 5000, 1000, 5000);
  LinkDemand now = reported;
  reported.classes = {{.demand_bytes = 90'000}, {.demand_bytes = 0}};
  now.classes = {{.demand_bytes = 80'000}, {.demand_bytes = 0}};
  EXPECT_FALSE(IsUrgent(reported, now, false));
  now.classes = {{.demand_bytes = 80'000}, {.demand_bytes = 10'000}};
  EXPECT_TRUE(IsUrgent(reported, now, false));
  EXPECT_TRUE(IsUrgent(now, reported, false));
}

TEST(IsUrgentTest, DrainedToASmallerLease) {
  const LinkDemand reported = Demand(90'000, 9000, 1000, 5000);
  EXPECT_FALSE(IsUrgent(reported, Demand(90'000, 6000, 1000, 5000), false));
  EXPECT_TRUE(IsUrgent(reported, Demand(90'000, 5000, 1000, 5000), false));
  EXPECT_FALSE(IsUrgent(Demand(90'000, 5000, 1000, 5000), Demand(90'000, 4000, 1000, 5000), false));
}

TEST(IsUrgentTest, ACallThatNeedsMoreThanThereIs) {
  const LinkDemand reported = Demand(90'000, 0, 1000, 5000);
  EXPECT_TRUE(IsUrgent(reported, Demand(90'000, 0, 6000, 5000), false));
  EXPECT_FALSE(IsUrgent(Demand(90'000, 0, 6000, 5000), Demand(90'000, 0, 6000, 5000), false));
}

TEST(IsUrgentTest, TheEndOfABlockWhereBlocksTakeTurns) {
  LinkDemand reported = Demand(90'000, 0, 1000, 5000);
  LinkDemand next = reported;
  reported.oldest_block = 1;
  next.oldest_block = 2;
  EXPECT_TRUE(IsUrgent(reported, next, true));
  EXPECT_FALSE(IsUrgent(reported, next, false));
}

TEST(LinkHelloTest, NamesTheFieldAndTheBound) {
  EXPECT_EQ(CheckApplication("Search-2.main_x"), absl::OkStatus());
  EXPECT_EQ(CheckApplication(std::string(64, 'x')), absl::OkStatus());
  for (const std::string& bad : {std::string(), std::string(65, 'x'), std::string("a b"), std::string("a\n")}) {
    EXPECT_THAT(std::string(CheckApplication(bad).message()), HasSubstr("application: \"")) << bad;
  }
  EXPECT_EQ(CheckWeight(0.001), absl::OkStatus());
  EXPECT_EQ(CheckWeight(1000), absl::OkStatus());
  for (const double bad : {0.0, -1.0, 1001.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(std::string(CheckWeight(bad).message()), HasSubstr("weight: ")) << bad;
  }
}

}  // namespace
}  // namespace sluice
