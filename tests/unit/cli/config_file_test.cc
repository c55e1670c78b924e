#include "lib/cli/config_file.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sluice/v1/config.pb.h"

#include "tests/unit/cli/temp_file.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LoadConfigFileTest, ReadsJsonWithEitherSpellingOfAKey) {
  v1::AggregatorConfig config;
  const std::string path = WriteTempFile(
      R"({"listen": "0.0.0.0:7000", "workers": ["a:1", "b:1"], "link": {"capacity": "100mbit", "packet_payload": 1000},
          "schedule": {"policy": "rolling", "queueLimit": "10"}, "log_level": "debug", "reflection": true})");
  const absl::Status status = LoadConfigFile(path, config);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(config.listen(), "0.0.0.0:7000");
  EXPECT_THAT(config.workers(), ElementsAre("a:1", "b:1"));
  EXPECT_EQ(config.link().capacity(), "100mbit");
  EXPECT_EQ(config.link().packet_payload(), 1000);
  EXPECT_EQ(config.schedule().queue_limit(), 10);
  EXPECT_EQ(config.log_level(), "debug");
  EXPECT_TRUE(config.reflection());
}

TEST(LoadConfigFileTest, KeepsWhatTheFileDoesNotName) {
  v1::AggregatorConfig config;
  config.set_listen("x:1");
  v1::LinkProfile* const link = config.mutable_link();
  link->set_buffer("32kb");
  ASSERT_TRUE(LoadConfigFile(WriteTempFile(R"({"link": {"capacity": "1gbit"}})"), config).ok());
  EXPECT_EQ(config.listen(), "x:1");
  EXPECT_EQ(config.mutable_link(), link) << "flags are bound to it";
  EXPECT_EQ(link->buffer(), "32kb");
  EXPECT_EQ(link->capacity(), "1gbit");
}

TEST(LoadConfigFileTest, NamesAnUnknownKeyAndChangesNothing) {
  v1::AggregatorConfig config;
  for (const char* text : {R"({"listen": "x:1", "reflexion": true})", R"({"link": {"reflexion": "100mbit"}})"}) {
    const std::string path = WriteTempFile(text);
    const absl::Status status = LoadConfigFile(path, config);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(path), HasSubstr("reflexion")));
    EXPECT_EQ(config.ByteSizeLong(), 0u);
  }
}

TEST(LoadConfigFileTest, RefusesWhatIsNotSuchAConfig) {
  v1::AggregatorConfig config;
  for (const char* text : {"", "{", "[]", "listen: x", R"({"reflection": "perhaps"})", R"({"attempts": 1.5})",
                           R"({"listen": {}})", "\xff\xfe"}) {
    const std::string path = WriteTempFile(text);
    const absl::Status status = LoadConfigFile(path, config);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
    EXPECT_EQ(config.ByteSizeLong(), 0u) << text;
  }
}

TEST(LoadConfigFileTest, ANumberInPlaceOfATextIsShownAsAText) {
  v1::AggregatorConfig config;
  const absl::Status status = LoadConfigFile(WriteTempFile(R"({"link": {"buffer": 32000}})"), config);
  EXPECT_THAT(std::string(status.message()), HasSubstr("link.buffer: 32000 is not a string; write \"32000\""));
}

TEST(LoadConfigFileTest, SaysThatAFileIsMissingOrAFolder) {
  v1::AggregatorConfig config;
  const absl::Status missing = LoadConfigFile("/nonexistent/aggregator.json", config);
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("/nonexistent/aggregator.json does not exist"));
  const absl::Status folder = LoadConfigFile(::testing::TempDir(), config);
  EXPECT_EQ(folder.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(folder.message()), HasSubstr("is a folder"));
}

TEST(LoadConfigFileTest, ReadsUpToItsBoundAndNoFurther) {
  constexpr size_t kBound = 1 << 20;
  const std::string text = R"({"listen": "x:1"})";
  v1::AggregatorConfig config;
  const absl::Status fits = LoadConfigFile(WriteTempFile(text + std::string(kBound - text.size(), ' ')), config);
  EXPECT_TRUE(fits.ok()) << fits;
  EXPECT_EQ(config.listen(), "x:1");
  const absl::Status large = LoadConfigFile(WriteTempFile(text + std::string(kBound + 1 - text.size(), ' ')), config);
  EXPECT_EQ(large.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(large.message()), HasSubstr("larger than 1048576 bytes"));
}

}  // namespace
}  // namespace sluice
