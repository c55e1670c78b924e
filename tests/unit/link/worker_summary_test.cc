#include "lib/link/worker_summary.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Struct Parse(const std::string& json) {
  Struct object;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &object);
  EXPECT_TRUE(status.ok()) << status.ToString() << ": " << json;
  return object;
}

std::vector<Struct> Rows(const Struct& object) {
  std::vector<Struct> rows;
  for (const Value& value : object.fields().at("workers").list_value().values()) rows.push_back(value.struct_value());
  return rows;
}

std::vector<std::string> Addresses(const std::string& json) {
  std::vector<std::string> addresses;
  for (const Struct& row : Rows(Parse(json))) addresses.push_back(row.fields().at("address").string_value());
  return addresses;
}

WorkerSummary Worker(std::string address, absl::Duration ready, absl::Duration transfer) {
  return {.address = std::move(address), .ready = ready, .transfer = transfer};
}

TEST(WorkerSummaryTest, TellsAllOfAWorker) {
  const Struct object = Parse(WorstWorkersJson({{.address = "10.0.0.1:20000",
                                                 .responses = 123,
                                                 .ready = absl::Milliseconds(1),
                                                 .transfer = absl::Milliseconds(3),
                                                 .rtt = absl::Microseconds(300),
                                                 .losses = 4,
                                                 .rtos = 5,
                                                 .in_flight = 6,
                                                 .faults = {"slow", "paused"}}}));
  EXPECT_EQ(object.fields().at("total").number_value(), 1);
  ASSERT_EQ(Rows(object).size(), 1U);
  const Struct row = Rows(object).front();
  EXPECT_EQ(row.fields().at("address").string_value(), "10.0.0.1:20000");
  for (const auto& [key, value] : {std::pair("responses", 123.0),
                                   {"ready_seconds", 0.001},
                                   {"transfer_seconds", 0.003},
                                   {"rtt_seconds", 0.0003},
                                   {"losses", 4.0},
                                   {"rtos", 5.0},
                                   {"in_flight", 6.0}}) {
    EXPECT_EQ(row.fields().at(key).number_value(), value) << key;
  }
  const auto& faults = row.fields().at("faults").list_value().values();
  ASSERT_EQ(faults.size(), 2);
  EXPECT_EQ(faults[0].string_value(), "slow");
  EXPECT_EQ(faults[1].string_value(), "paused");
  EXPECT_EQ(row.fields().size(), 9U);
}

TEST(WorkerSummaryTest, ATimeThatIsNotKnownIsLeftOut) {
  const Struct object = Parse(WorstWorkersJson(
      {{.address = "a:1", .ready = absl::InfiniteDuration(), .transfer = absl::InfiniteDuration(), .rtt = {}}}));
  const Struct row = Rows(object).at(0);
  EXPECT_FALSE(row.fields().contains("ready_seconds"));
  EXPECT_FALSE(row.fields().contains("transfer_seconds"));
  EXPECT_TRUE(row.fields().contains("rtt_seconds"));
}

TEST(WorkerSummaryTest, TheSlowestComeFirstAndThoseNotKnownLast) {
  constexpr absl::Duration kUnknown = absl::InfiniteDuration();
  const std::string json = WorstWorkersJson({Worker("new:1", kUnknown, kUnknown),
                                             Worker("fast:1", absl::Milliseconds(1), absl::Milliseconds(1)),
                                             Worker("far:1", absl::Milliseconds(1), absl::Milliseconds(9)),
                                             Worker("busy:1", absl::Milliseconds(8), absl::Milliseconds(1)),
                                             Worker("also_fast:1", absl::Milliseconds(1), absl::Milliseconds(1))});
  EXPECT_THAT(Addresses(json), ElementsAre("far:1", "busy:1", "also_fast:1", "fast:1", "new:1"));
}

TEST(WorkerSummaryTest, ThoseAtFaultComeFirst) {
  WorkerSummary paused = Worker("paused:1", absl::Milliseconds(1), absl::Milliseconds(1));
  paused.faults = {"paused"};
  const std::string json = WorstWorkersJson({Worker("far:1", absl::Milliseconds(1), absl::Milliseconds(9)), paused});
  EXPECT_THAT(Addresses(json), ElementsAre("paused:1", "far:1"));
}

TEST(WorkerSummaryTest, ShowsTwentyOfMany) {
  std::vector<WorkerSummary> workers;
  for (int i = 1; i <= 64; ++i) workers.push_back(Worker(absl::StrCat("w", i), absl::Milliseconds(i), {}));
  const std::string json = WorstWorkersJson(workers);
  const std::vector<std::string> addresses = Addresses(json);
  ASSERT_EQ(addresses.size(), 20U);
  EXPECT_EQ(addresses.front(), "w64");
  EXPECT_EQ(addresses.back(), "w45");
  EXPECT_EQ(Parse(json).fields().at("total").number_value(), 64);
}

TEST(WorkerSummaryTest, NoWorkersAreAnEmptyList) {
  const Struct object = Parse(WorstWorkersJson({}));
  EXPECT_EQ(Rows(object).size(), 0U);
  EXPECT_EQ(object.fields().at("total").number_value(), 0);
}

// An address comes from a config file, and may be any text.
TEST(WorkerSummaryTest, AddressesAreEscaped) {
  const std::string address = "\"}],\\\n\t</script><img src=x onerror=alert(1)>\xc3\xa9\x01";
  const std::string json = WorstWorkersJson({Worker(address, {}, {})});
  EXPECT_THAT(Addresses(json), ElementsAre(address));
  EXPECT_THAT(json, Not(HasSubstr("<")));
  EXPECT_THAT(json, Not(HasSubstr("\n")));
  EXPECT_THAT(json, HasSubstr("\\u0001"));
}

TEST(WorkerSummaryTest, AnAddressThatIsNoTextDoesNoHarm) {
  const std::string json = WorstWorkersJson({Worker("bad\xff\xfe:1", {}, {}), Worker("good:1", {}, {})});
  EXPECT_THAT(Addresses(json), ElementsAre(HasSubstr("bad"), "good:1"));
}

}  // namespace
}  // namespace sluice
