#include "lib/cli/link_options.h"

#include <string>

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include "tests/has_code.h"

namespace sluice {
namespace {

using testing::HasCode;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::StatusOr<Link::Options> ParseLink(const v1::ScheduleConfig& schedule) {
  return ParseLinkOptions(LinkConfig{.link = v1::LinkProfile(), .schedule = schedule, .application = "test"});
}

absl::StatusOr<Link::Options> ParseLink(const std::string& json) {
  v1::ScheduleConfig schedule;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(json, &schedule).ok()) << json;
  return ParseLink(schedule);
}

TEST(LinkOptionsTest, ClassesOfTrafficHaveTheirNamesAndWeights) {
  EXPECT_THAT(ParseLink("{}")->schedule.classes, IsEmpty());
  const auto options = ParseLink(R"({"classes": [{"name": "queries", "weight": 3}, {"name": "scan"}]})");
  ASSERT_TRUE(options.ok()) << options.status();
  ASSERT_EQ(options->schedule.classes.size(), 2U);
  EXPECT_EQ(options->schedule.classes[0].name, "queries");
  EXPECT_EQ(options->schedule.classes[0].weight, 3);
  EXPECT_EQ(options->schedule.classes[1].name, "scan");
  EXPECT_EQ(options->schedule.classes[1].weight, 1);
}

TEST(LinkOptionsTest, AClassThatIsOutOfBoundsIsNamedWithItsBound) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"classes": [{"weight": 3}]})", "classes: \"\" is not a name of 1 to 32"},
      {R"({"classes": [{"name": "a", "weight": 0}]})", "classes: \"a\": weight: 0 is outside of 0.001 to 1000"},
      {R"({"classes": [{"name": "a", "weight": 1001}]})", "weight: 1001 is outside of"},
      {R"({"classes": [{"name": "a", "weight": "NaN"}]})", "weight: nan is outside of"},
      {R"({"classes": [{"name": "a"}, {"name": "a"}]})", "classes: \"a\": two classes have this name"},
      {R"({"policy": "batches", "classes": [{"name": "a"}]})", "the policy batches does not share the link"},
  };
  for (const auto& [json, why] : cases) {
    const absl::Status refused = ParseLink(json).status();
    EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument)) << json;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(why)) << json;
  }
}

TEST(LinkOptionsTest, AWorkerHasAFewConnections) {
  EXPECT_EQ(ParseLink("{}")->worker_connections, 4);
  EXPECT_EQ(ParseLink(R"({"worker_connections": 1})")->worker_connections, 1);
  const absl::Status refused = ParseLink(R"({"worker_connections": 4294967297})").status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("worker_connections: 4294967297 is outside of 1 to 16"));
}

TEST(LinkOptionsTest, OutlierDetectionHasDefaultsAndBounds) {
  EXPECT_EQ(ParseLink("{}")->outlier_detection.consecutive_errors, 5);
  const auto parsed = ParseLink(R"({"outlier_detection": {"consecutive_errors": 3, "failure_percentage_threshold": 50,
      "latency_factor": 2.5, "request_volume": 7, "interval": "1s", "base_ejection_time": "2s",
      "max_ejection_time": "3s", "max_ejection_percent": 20}})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const OutlierDetection& options = parsed->outlier_detection;
  EXPECT_EQ(options.consecutive_errors, 3);
  EXPECT_EQ(options.failure_percentage_threshold, 50);
  EXPECT_EQ(options.latency_factor, 2.5);
  EXPECT_EQ(options.request_volume, 7);
  EXPECT_EQ(options.interval, absl::Seconds(1));
  EXPECT_EQ(options.base_ejection_time, absl::Seconds(2));
  EXPECT_EQ(options.max_ejection_time, absl::Seconds(3));
  EXPECT_EQ(options.max_ejection_percent, 20);
  const absl::Status refused = ParseLink(R"({"outlier_detection": {"max_ejection_percent": 101}})").status();
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("schedule.outlier_detection.max_ejection_percent: 101 is outside of 0 to 100"));
}

TEST(LinkOptionsTest, AFlagReplacesTheClassesOfTheFile) {
  v1::ScheduleConfig schedule;
  schedule.add_classes()->set_name("old");
  EXPECT_TRUE(SetTrafficClasses({"queries=3", "scan=0.5"}, schedule).ok());
  ASSERT_EQ(schedule.classes_size(), 2);
  EXPECT_EQ(schedule.classes(0).name(), "queries");
  EXPECT_EQ(schedule.classes(0).weight(), 3);
  EXPECT_EQ(schedule.classes(1).name(), "scan");
  EXPECT_EQ(schedule.classes(1).weight(), 0.5);
  for (const char* value : {"queries", "queries=", "queries=much", "queries=3x"}) {
    const absl::Status refused = SetTrafficClasses({value}, schedule);
    EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument)) << value;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("is not NAME=WEIGHT")) << value;
  }
}

}  // namespace
}  // namespace sluice
