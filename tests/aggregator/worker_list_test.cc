#include "aggregator/worker_list.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

WorkerList Parsed(const std::vector<std::string>& entries) {
  const absl::StatusOr<WorkerList> list = ParseWorkerList(entries);
  EXPECT_TRUE(list.ok()) << list.status();
  return list.value_or(WorkerList());
}

TEST(WorkerListTest, AddressesStandForThemselves) {
  const WorkerList list = Parsed({"a:1", "unix:/run/w", "[::1]:80"});
  EXPECT_THAT(list.fixed, ElementsAre("a:1", "unix:/run/w", "[::1]:80"));
  EXPECT_FALSE(list.open.has_value());
  EXPECT_THAT(Parsed({}).fixed, IsEmpty());
}

TEST(WorkerListTest, ARangeStandsForAllOfItsNumbersInOrder) {
  EXPECT_THAT(Parsed({"first:1", "w-{9..11}.ws:7", "last:1"}).fixed,
              ElementsAre("first:1", "w-9.ws:7", "w-10.ws:7", "w-11.ws:7", "last:1"));
  EXPECT_THAT(Parsed({"127.0.0.1:{7000..7000}"}).fixed, ElementsAre("127.0.0.1:7000"));
  EXPECT_THAT(Parsed({"w-{0..65535}:1"}).fixed, SizeIs(65536));
}

TEST(WorkerListTest, AnOpenRangeHasAsManyWorkersAsAreFound) {
  const WorkerList list = Parsed({"first:1", "w-{3..}.ws:7"});
  EXPECT_THAT(list.fixed, ElementsAre("first:1"));
  ASSERT_TRUE(list.open.has_value());
  EXPECT_EQ(list.open->Address(0), "w-3.ws:7");
  EXPECT_THAT(list.Addresses(0), ElementsAre("first:1"));
  EXPECT_THAT(list.Addresses(2), ElementsAre("first:1", "w-3.ws:7", "w-4.ws:7"));
}

TEST(WorkerListTest, IsEqualWhereItHasTheSameWorkers) {
  EXPECT_EQ(Parsed({"w-{0..1}:1"}), Parsed({"w-0:1", "w-1:1"}));
  EXPECT_EQ(Parsed({"w-{0..}:1"}), Parsed({"w-{0..}:1"}));
  EXPECT_NE(Parsed({"w-{0..}:1"}), Parsed({"w-{1..}:1"}));
}

TEST(WorkerListTest, RefusesWhatIsNoRangeAndQuotesIt) {
  for (const char* entry : {"w-{}:1",       "w-{0}:1",           "w-{0.1}:1",     "w-{..}:1",
                            "w-{..3}:1",    "w-{a..b}:1",        "w-{0..b}:1",    "w-{-1..3}:1",
                            "w-{+0..3}:1",  "w-{ 0..3}:1",       "w-{00..3}:1",   "w-{0..03}:1",
                            "w-{0...3}:1",  "w-{0..65536}:1",    "w-{65536..}:1", "w-{0..99999999999}:1",
                            "w-{3..2}:1",   "w-{0..3:1",         "w-0..3}:1",     "w-}0..3{:1",
                            "w-{{0..3}}:1", "w-{0..3}-{0..3}:1", "w-{0..3}}:1"}) {
    const absl::Status status = ParseWorkerList({"a:1", entry}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << entry;
    EXPECT_THAT(std::string(status.message()), HasSubstr("workers: \"" + std::string(entry) + "\" "));
  }
}

TEST(WorkerListTest, RefusesAnOpenRangeBeforeOthers) {
  const absl::Status status = ParseWorkerList({"w-{0..}:1", "a:1"}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"w-{0..}:1\" is open and not the last entry"));
}

// Each of 65536 addresses would have a megabyte.
TEST(WorkerListTest, RefusesAPatternThatWouldTakeAllMemory) {
  const std::string longest(512 - std::string("{0..65535}").size(), 'x');
  EXPECT_THAT(Parsed({longest + "{0..65535}"}).fixed, SizeIs(65536));
  const absl::Status status = ParseWorkerList({std::string(1 << 20, 'x') + "{0..65535}"}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("has 1048586 bytes; a pattern has at most 512"));
}

TEST(WorkerListTest, RefusesMoreWorkersThanAStripeCanHave) {
  const absl::Status status = ParseWorkerList({"a:1", "w-{0..65535}:1"}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("makes more than 65536 workers"));
}

}  // namespace
}  // namespace sluice
