#include "aggregator/reloadable_config.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include "aggregator/aggregator_config.h"
#include "lib/cli/config_reload.h"
#include "lib/cli/logging.h"
#include "prometheus/registry.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

v1::AggregatorConfig Config(const std::string& json = "{}") {
  v1::AggregatorConfig config;
  config.set_listen("127.0.0.1:0");
  config.add_workers("w:1");
  v1::AggregatorConfig given;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(json, &given).ok()) << json;
  if (given.workers_size() > 0) config.clear_workers();
  config.MergeFrom(given);
  return config;
}

TEST(CheckReloadableTest, WhatDescribesTheLinkTheWorkersAndReadsMayChange) {
  for (const char* json :
       {"{}", R"({"workers": ["a:1", "b:1"]})", R"({"link": {"capacity": "10gbit", "buffer": "1mb"}})",
        R"({"schedule": {"budget": "1mb", "budget_floor": "1kb", "budget_limit": "2mb", "queue_limit": 7}})",
        R"({"schedule": {"policy": "unscheduled"}})", R"({"schedule": {"policy": "batches"}})",
        R"({"schedule": {"queue_timeout": "1s", "worker_connections": 2}})",
        R"({"sru_timeout": "1s", "block_timeout": "2s", "connect_timeout": "3s", "attempts": 4})",
        R"({"segment_bytes": "1mb", "log_level": "debug"})"}) {
    EXPECT_TRUE(CheckReloadable(Config(), Config(json)).ok()) << json;
    EXPECT_TRUE(CheckReloadable(Config(json), Config()).ok()) << json;
  }
}

TEST(CheckReloadableTest, AllElseIsNamedWithWhatItWasAndIs) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"listen": "127.0.0.1:1"})", "listen: \"127.0.0.1:0\" -> \"127.0.0.1:1\""},
      {R"({"admin": "127.0.0.1:1"})", "admin: \"127.0.0.1:1\""},
      {R"({"schedule": {"classes": [{"name": "scan"}]}})", "schedule.classes[0]: { name: \"scan\" }"},
      {R"({"reflection": true})", "reflection: true"},
      {R"({"drain_timeout": "1s"})", "drain_timeout: \"1s\""},
      {R"({"drain_delay": "1s"})", "drain_delay: \"1s\""},
      {R"({"reload_interval": "1s"})", "reload_interval: \"1s\""},
      {R"({"read_memory": "1mb"})", "read_memory: \"1mb\""},
      {R"({"tls": {"certificate": "c", "key": "k"}})", "tls: { certificate: \"c\" key: \"k\" }"},
  };
  for (const auto& [json, named] : cases) {
    const absl::Status status = CheckReloadable(Config(), Config(json));
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << json;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(named), Not(HasSubstr("budget")), Not(HasSubstr("\n"))));
  }
}

TEST(ConfigHashTest, IsThatOfWhatTheConfigSays) {
  EXPECT_EQ(ConfigHash(Config()), ConfigHash(Config()));
  EXPECT_NE(ConfigHash(Config()), ConfigHash(Config(R"({"attempts": 3})")));
}

class ConfigReloadTest : public ::testing::Test {
 protected:
  ConfigReloadTest() : metrics_(registry_) { StartLogging(); }

  double Value(const std::string& name, const std::string& label = "") {
    for (const auto& family : registry_.Collect()) {
      if (family.name != name) continue;
      for (const auto& metric : family.metric) {
        if (label.empty()) return metric.gauge.value;
        if (metric.label.at(0).value == label) return metric.counter.value;
      }
    }
    ADD_FAILURE() << "no " << name << " " << label;
    return 0;
  }

  void ExpectOutcomes(int applied, int invalid, int refused) {
    EXPECT_EQ(Value("sluice_config_reloads_total", "applied"), applied);
    EXPECT_EQ(Value("sluice_config_reloads_total", "invalid"), invalid);
    EXPECT_EQ(Value("sluice_config_reloads_total", "refused"), refused);
  }

  prometheus::Registry registry_;
  ConfigMetrics metrics_;
  absl::StatusOr<v1::AggregatorConfig> file_ = Config();
  absl::Status may_apply_;
  std::vector<AggregatorOptions> applied_;
  static const v1::AggregatorConfig& Of(const ConfigReload::Config& config) {
    return static_cast<const v1::AggregatorConfig&>(config);
  }
  ConfigReload reload_{
      {.in_force = std::make_unique<v1::AggregatorConfig>(Config()),
       .read =
           [this](ConfigReload::Config& config) {
             if (file_.ok()) config.CopyFrom(*file_);
             return file_.status();
           },
       .check = [](const auto& before, const auto& after) { return CheckReloadable(Of(before), Of(after)); },
       .apply =
           [this](const ConfigReload::Config& config) {
             return ApplyConfig(Of(config), ParseAggregatorConfig, [this](const AggregatorOptions& options) {
               if (may_apply_.ok()) applied_.push_back(options);
               return may_apply_;
             });
           }},
      metrics_};
};

TEST_F(ConfigReloadTest, TheSameConfigChangesNothing) {
  const double since = Value("sluice_config_last_reload_success_timestamp_seconds");
  EXPECT_GT(since, 0);
  reload_.Look();
  EXPECT_TRUE(applied_.empty());
  ExpectOutcomes(0, 0, 0);
  EXPECT_EQ(Value("sluice_config_last_reload_success_timestamp_seconds"), since);
  EXPECT_EQ(Value("sluice_config_hash"), ConfigHash(Config()));
}

TEST_F(ConfigReloadTest, AChangeIsAppliedOnce) {
  file_ = Config(R"({"attempts": 5, "workers": ["a:1", "b-{0..1}:1"]})");
  reload_.Look();
  reload_.Look();
  ASSERT_EQ(applied_.size(), 1u);
  EXPECT_EQ(applied_[0].reader.attempts, 5);
  EXPECT_THAT(applied_[0].workers.fixed, ::testing::ElementsAre("a:1", "b-0:1", "b-1:1"));
  ExpectOutcomes(1, 0, 0);
  EXPECT_EQ(Value("sluice_config_hash"), ConfigHash(*file_));
}

TEST_F(ConfigReloadTest, WhatIsWrongKeepsTheConfigInForce) {
  file_ = absl::InvalidArgumentError("not JSON");
  reload_.Look();
  file_ = Config(R"({"attempts": 101})");
  reload_.Look();
  file_ = Config(R"({"log_level": "loud"})");
  reload_.Look();
  file_ = Config(R"({"attempts": 5})");
  may_apply_ = absl::InvalidArgumentError("no");
  reload_.Look();
  EXPECT_TRUE(applied_.empty());
  ExpectOutcomes(0, 4, 0);
  EXPECT_EQ(Value("sluice_config_hash"), ConfigHash(Config()));
  may_apply_ = absl::OkStatus();
  reload_.Look();
  ExpectOutcomes(1, 4, 0);
}

TEST_F(ConfigReloadTest, WhatNeedsARestartIsRefusedAsAWhole) {
  file_ = Config(R"({"attempts": 5, "listen": "127.0.0.1:1"})");
  ::testing::internal::CaptureStderr();
  reload_.Look();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, AllOf(HasSubstr("config not applied"), HasSubstr("listen")));
  EXPECT_TRUE(applied_.empty());
  ExpectOutcomes(0, 0, 1);
  file_ = Config();
  reload_.Look();
  EXPECT_TRUE(applied_.empty()) << "it is in force already";
}

}  // namespace
}  // namespace sluice
