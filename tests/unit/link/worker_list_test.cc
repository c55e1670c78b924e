#include "lib/link/worker_list.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

WorkerList Parsed(const std::vector<std::string>& entries) {
  const absl::StatusOr<WorkerList> list = ParseWorkerList(entries);
  EXPECT_TRUE(list.ok()) << list.status();
  return list.value_or(WorkerList());
}

std::string Refusal(const std::vector<std::string>& entries) {
  const absl::Status status = ParseWorkerList(entries).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(WorkerListTest, AddressesStandForThemselves) {
  const WorkerList list = Parsed({"a:1", "unix:/run/w", "[::1]:80", "dns:///a:1"});
  EXPECT_THAT(list.fixed, ElementsAre("a:1", "unix:/run/w", "[::1]:80", "dns:///a:1"));
  EXPECT_FALSE(list.NeedsLookUps());
}

TEST(WorkerListTest, ARangeStandsForAllOfItsNumbersInOrder) {
  EXPECT_THAT(Parsed({"first:1", "w-{9..11}.ws:7", "last:1"}).fixed,
              ElementsAre("first:1", "w-9.ws:7", "w-10.ws:7", "w-11.ws:7", "last:1"));
  EXPECT_THAT(Parsed({"127.0.0.1:{7000..7000}"}).fixed, ElementsAre("127.0.0.1:7000"));
  EXPECT_THAT(Parsed({"unix:/run/{1..2}"}).fixed, ElementsAre("unix:/run/1", "unix:/run/2"));
  EXPECT_THAT(Parsed({"w-{0..65535}:1"}).fixed, SizeIs(65536));
}

TEST(WorkerListTest, AnOpenRangeHasAsManyWorkersAsAreFound) {
  const WorkerList list = Parsed({"first:1", "w-{3..}.ws:7"});
  EXPECT_TRUE(list.NeedsLookUps());
  EXPECT_THAT(list.fixed, ElementsAre("first:1"));
  ASSERT_TRUE(list.open.has_value());
  EXPECT_EQ(list.open->Address(0), "w-3.ws:7");
  EXPECT_THAT(list.Addresses(0), ElementsAre("first:1"));
  EXPECT_THAT(list.Addresses(2), ElementsAre("first:1", "w-3.ws:7", "w-4.ws:7"));
}

TEST(WorkerListTest, ANameHasItsAddressesBehindAllOthers) {
  const WorkerList list = Parsed({"dns+stores.ns:7", "first:1", "dns+others:8"});
  EXPECT_TRUE(list.NeedsLookUps());
  EXPECT_THAT(list.names, ElementsAre("stores.ns:7", "others:8"));
  EXPECT_THAT(list.Addresses(0, {"10.0.0.1:7"}), ElementsAre("first:1", "10.0.0.1:7"));
  EXPECT_THAT(list.Addresses(0, std::vector<std::string>(kMaxListedWorkers, "10.0.0.1:7")), SizeIs(kMaxListedWorkers));
}

TEST(WorkerListTest, IsEqualWhereItHasTheSameWorkers) {
  EXPECT_EQ(Parsed({"w-{0..1}:1"}), Parsed({"w-0:1", "w-1:1"}));
  EXPECT_EQ(Parsed({"w-{0..}:1"}), Parsed({"w-{0..}:1"}));
  EXPECT_NE(Parsed({"w-{0..}:1"}), Parsed({"w-{1..}:1"}));
  EXPECT_EQ(Parsed({"dns+w:1"}), Parsed({"dns+w:1"}));
  EXPECT_NE(Parsed({"dns+w:1"}), Parsed({"dns+w:2"}));
  EXPECT_NE(Parsed({"dns+w:1"}), Parsed({"w:1"}));
}

TEST(WorkerListTest, RefusesWhatIsNoRangeAndQuotesIt) {
  for (const char* entry : {"w-{}:1",       "w-{0}:1",           "w-{0.1}:1",     "w-{..}:1",
                            "w-{..3}:1",    "w-{a..b}:1",        "w-{0..b}:1",    "w-{-1..3}:1",
                            "w-{+0..3}:1",  "w-{ 0..3}:1",       "w-{00..3}:1",   "w-{0..03}:1",
                            "w-{0...3}:1",  "w-{0..65536}:1",    "w-{65536..}:1", "w-{0..99999999999}:1",
                            "w-{3..2}:1",   "w-{0..3:1",         "w-0..3}:1",     "w-}0..3{:1",
                            "w-{{0..3}}:1", "w-{0..3}-{0..3}:1", "w-{0..3}}:1"}) {
    EXPECT_THAT(Refusal({"a:1", entry}), StartsWith(absl::StrCat("workers[1]: \"", entry, "\" has ")));
  }
}

// Each of 65536 addresses would take a megabyte.
TEST(WorkerListTest, RefusesAnEntryThatWouldTakeAllMemory) {
  const std::string longest(512 - std::string("{0..65535}:1").size(), 'x');
  EXPECT_THAT(Parsed({longest + "{0..65535}:1"}).fixed, SizeIs(65536));
  EXPECT_EQ(Refusal({std::string(1 << 20, 'x') + "{0..65535}:1"}),
            absl::StrCat("workers[0]: \"", std::string(64, 'x'), "\" ... has 1048588 bytes; an entry has at most 512"));
}

TEST(WorkerListTest, RefusesWhatIsNoAddressAndSaysWhich) {
  EXPECT_EQ(Refusal({"a:1", "nonsense"}), "workers[1]: \"nonsense\" is not host:port with a port between 1 and 65535");
  EXPECT_THAT(Refusal({"unix:"}), StartsWith("workers[0]: \"unix:\" names no socket"));
  for (const auto& [entry, worker] :
       {std::pair("w-{3..5}", "w-3"), std::pair("w:{0..5}", "w:0"), std::pair("w:{65530..65535}0", "w:655300"),
        std::pair("w-{3..}", "w-3"), std::pair("ipv{0..9}:7000", "ipv4:7000")}) {
    EXPECT_THAT(Refusal({entry}), AllOf(StartsWith(absl::StrCat("workers[0]: \"", entry, "\" ")), HasSubstr(worker)));
  }
  EXPECT_EQ(Refusal({}), "workers lists 0 addresses; it must list 1 to 65536");
}

// Every number would give an address, so the range would have no end.
TEST(WorkerListTest, RefusesAnOpenRangeOfWhatIsNotLookedUp) {
  for (const char* entry : {"127.0.0.1:{7000..}", "127.0.0.{1..}:7000", "unix:/run/{0..}", "dns:///w-{0..}:1",
                            "ipv4:10.0.0.{1..}:7", "w:{7000..}"}) {
    EXPECT_THAT(Refusal({entry}), StartsWith(absl::StrCat("workers[0]: \"", entry, "\" is open"))) << entry;
  }
}

TEST(WorkerListTest, RefusesWhatIsNoNameBehindDns) {
  for (const char* entry : {"dns+", "dns+w", "dns+w:0", "dns+w:65536", "dns+10.0.0.1:7", "dns+[::1]:7",
                            "dns+unix:/run/w", "dns+dns:///w:1", "dns+dns+w", "dns+w-{0..3}:1"}) {
    EXPECT_THAT(Refusal({entry}), StartsWith(absl::StrCat("workers[0]: \"", entry, "\" is not dns+NAME:PORT")))
        << entry;
  }
}

TEST(WorkerListTest, RefusesAnOpenRangeBeforeOthers) {
  EXPECT_THAT(Refusal({"w-{0..}:1", "a:1"}), HasSubstr("\"w-{0..}:1\" is open and not the last entry"));
}

TEST(WorkerListTest, RefusesMoreWorkersThanAListMayHave) {
  EXPECT_THAT(Refusal({"a:1", "w-{0..65535}:1"}), HasSubstr("makes more than 65536 workers"));
  EXPECT_THAT(Refusal({"w-{0..65535}:1", "a:1"}), HasSubstr("\"a:1\" makes more than 65536 workers"));
}

TEST(WorkerListTest, WhoNeedsAllWorkersAtOnceRefusesWhatIsLookedUp) {
  EXPECT_THAT(*ParseFixedWorkers({"a:1", "w-{0..1}:1"}), ElementsAre("a:1", "w-0:1", "w-1:1"));
  EXPECT_THAT(std::string(ParseFixedWorkers({"a:1", "w-{0..}:1"}).status().message()),
              HasSubstr("\"w-{0..}:1\" has to be looked up"));
  EXPECT_THAT(std::string(ParseFixedWorkers({"dns+w:1", "a:1"}).status().message()),
              HasSubstr("\"dns+w:1\" has to be looked up"));
  EXPECT_THAT(std::string(ParseFixedWorkers({"nonsense"}).status().message()), HasSubstr("nonsense"));
}

}  // namespace
}  // namespace sluice
