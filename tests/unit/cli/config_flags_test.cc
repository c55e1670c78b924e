#include "lib/cli/config_flags.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include "sluice/v1/config.pb.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// CLI11 expects the last argument first.
void Parse(CLI::App& app, std::vector<std::string> arguments) {
  std::reverse(arguments.begin(), arguments.end());
  app.parse(std::move(arguments));
}

// Returns the config of sluice-link after a command line.
std::string Parsed(std::vector<std::string> arguments, v1::LinkDaemonConfig config = {}) {
  CLI::App app;
  ConfigFlags(config).AddTo(app);
  Parse(app, std::move(arguments));
  return config.ShortDebugString();
}

// Returns the error of a command line.
std::string Refused(std::vector<std::string> arguments) {
  try {
    Parsed(std::move(arguments));
  } catch (const CLI::Error& error) {
    return error.what();
  }
  return "";
}

TEST(ConfigFlagsTest, AFlagSetsItsField) {
  EXPECT_EQ(Parsed({"--socket", "/s", "--budget=16kb"}), "socket: \"/s\" budget: \"16kb\"");
  EXPECT_EQ(Parsed({"--capacity", "1gbit", "--mtu", "9000"}), "link { capacity: \"1gbit\" mtu: 9000 }");
}

TEST(ConfigFlagsTest, AMessageThatNoFlagSetsStaysAbsent) {
  v1::LinkDaemonConfig config;
  CLI::App app;
  ConfigFlags(config).AddTo(app);
  Parse(app, {"--socket", "/s"});
  EXPECT_FALSE(config.has_link());
}

TEST(ConfigFlagsTest, OnlyAFlagThatIsGivenWinsOverTheConfig) {
  v1::LinkDaemonConfig config;
  config.set_socket("/file");
  config.set_budget("1mb");
  config.mutable_link()->set_buffer("32kb");
  EXPECT_EQ(Parsed({"--budget", "", "--rtt", "1ms"}, config),
            "socket: \"/file\" link { buffer: \"32kb\" rtt: \"1ms\" }");
}

TEST(ConfigFlagsTest, AListReplacesTheOneOfTheConfig) {
  v1::LinkDaemonConfig config;
  config.add_allowed_uids(7);
  EXPECT_EQ(Parsed({}, config), "allowed_uids: 7");
  EXPECT_EQ(Parsed({"--allowed_uids", "1,2", "--allowed_uids=3"}, config),
            "allowed_uids: 1 allowed_uids: 2 allowed_uids: 3");
}

TEST(ConfigFlagsTest, AWrongValueIsNamedWithItsFlag) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--allowed_uids", "1,root"}, {"--mtu", "root"}}) {
    EXPECT_THAT(Refused(arguments), HasSubstr(arguments.front()));
    EXPECT_THAT(Refused(arguments), HasSubstr("root"));
  }
  EXPECT_THAT(Refused({"--allowed_uids", "4294967296"}),
              HasSubstr("\"4294967296\" is not a number from 0 to 4294967295"));
  EXPECT_THAT(Refused({"--allowed_uids", "1,,2"}), HasSubstr("--allowed_uids: \"1,,2\" has an empty entry"));
  EXPECT_THAT(Refused({"--mtu", "0"}), HasSubstr("--mtu")) << "0 means \"not given\" in the config";
  EXPECT_THAT(Refused({"--mtu", "-1"}), HasSubstr("--mtu"));
}

TEST(ConfigFlagsTest, AFieldThatTheProgramLacksHasNoFlag) {
  for (const char* flag : {"--initial_window=1", "--connections=fresh", "--packet_payload=1", "--frame=1", "--ack=1"}) {
    EXPECT_THAT(Refused({flag}), HasSubstr(flag));
  }
}

// Returns the config of sluice-worker after a command line.
std::string ParsedWorker(std::vector<std::string> arguments, v1::WorkerConfig config = {}) {
  CLI::App app;
  ConfigFlags(config).AddTo(app);
  Parse(app, std::move(arguments));
  return config.ShortDebugString();
}

TEST(ConfigFlagsTest, ABoolWithoutAPlaceholderIsASwitch) {
  EXPECT_EQ(ParsedWorker({"--probe", "--reflection"}), "reflection: true probe: true");
  EXPECT_EQ(ParsedWorker({"--no_probe"}), "probe: false");
  EXPECT_EQ(ParsedWorker({"--probe=false"}), "probe: false");
  v1::WorkerConfig config;
  config.set_reflection(true);
  EXPECT_EQ(ParsedWorker({"--reflection=false"}, config), "");
}

TEST(ConfigFlagsTest, AListOfTextAndANumberWithAFraction) {
  EXPECT_EQ(ParsedWorker({"--listen", "a:1,b:2", "--think_tail_share", "0.5"}),
            "listen: \"a:1\" listen: \"b:2\" think_tail { share: 0.5 }");
}

// Returns the config of sluice-proxy after a command line, with a parser of routes.
std::string ParsedProxy(std::vector<std::string> arguments) {
  v1::ProxyConfig config;
  CLI::App app;
  ConfigFlags flags(config);
  flags.SetParser("route", [&config](const std::vector<std::string>& values) {
    config.clear_routes();
    for (const std::string& value : values) {
      if (value == "bad") return absl::InvalidArgumentError("\"bad\" is not a route");
      config.add_routes()->set_listen(value);
    }
    return absl::OkStatus();
  });
  flags.AddTo(app);
  Parse(app, std::move(arguments));
  return config.ShortDebugString();
}

TEST(ConfigFlagsTest, AFlagMayHaveASyntaxOfItsOwn) {
  EXPECT_EQ(ParsedProxy({"--route", "a,b"}), "routes { listen: \"a\" } routes { listen: \"b\" }");
  try {
    ParsedProxy({"--route", "bad"});
    FAIL() << "the route is refused";
  } catch (const CLI::ValidationError& error) {
    EXPECT_STREQ(error.what(), "--route: \"bad\" is not a route");
  }
}

TEST(ConfigFlagsTest, AMessageMayBeASwitchThatMakesItPresent) {
  v1::AggregatorConfig config;
  CLI::App app;
  ConfigFlags(config).AddTo(app);
  Parse(app, {"--mid_level"});
  EXPECT_EQ(config.ShortDebugString(), "mid_level { }");
}

TEST(ConfigFlagsTest, ABoolWithAPlaceholderTakesAValue) {
  EXPECT_EQ(ParsedProxy({"--tunnels_to_others", "false"}), "tunnels { to_others: false }");
  EXPECT_EQ(ParsedProxy({"--tunnels_to_others=true"}), "tunnels { to_others: true }");
}

TEST(ConfigFlagsTest, ANumberThatMayBeAbsentMayBeZero) {
  EXPECT_EQ(ParsedProxy({"--limits_calls", "0"}), "limits { calls: 0 }");
}

TEST(ConfigFlagsTest, HelpHasTheTextThePlaceholderAndTheDefault) {
  v1::LinkDaemonConfig config;
  CLI::App app;
  ConfigFlags(config).AddTo(app);
  const std::string help = app.help();
  EXPECT_THAT(help, HasSubstr("--socket PATH               Path of the Unix socket to serve on\n"));
  EXPECT_THAT(help, HasSubstr("--lease_time TIME           A process that is silent for this long loses its lease. "
                              "Default: 250ms\n"));
  EXPECT_THAT(help, HasSubstr("Bottleneck link:\n  --capacity RATE"));
}

TEST(ConfigFlagsTest, AProgramMayReplaceTheTextOfAField) {
  v1::ProxyConfig config;
  CLI::App app;
  ConfigFlags(config).AddTo(app);
  EXPECT_EQ(app.get_option("--policy")->get_description(),
            "Policy of the schedule: unscheduled, rolling or grants. Default: grants");
}

TEST(ConfigFlagsTest, AMessageMayBeShownAsAFieldShowsIt) {
  v1::LinkProfile config;
  v1::FieldHelp shown_as;
  shown_as.set_group("Link");
  shown_as.add_without("mtu");
  CLI::App app;
  ConfigFlags(config, shown_as).AddTo(app);
  EXPECT_THAT(app.help(), HasSubstr("Link:\n  --capacity"));
  EXPECT_THAT(app.help(), Not(HasSubstr("--mtu")));
}

// The rules for the descriptors of all programs.
class EveryConfigTest : public ::testing::TestWithParam<const google::protobuf::Descriptor*> {};

TEST_P(EveryConfigTest, NoFlagStandsTwice) {
  std::set<std::string> flags;
  for (const ConfigField& field : ConfigFields(*GetParam())) {
    if (field.flag.empty()) continue;
    EXPECT_TRUE(flags.insert(field.flag).second) << field.flag;
  }
  EXPECT_THAT(flags, Not(IsEmpty()));
}

// Returns the fields that have no help text, so that they would have neither a flag nor a row in the reference.
std::set<std::string> FieldsWithoutText(const google::protobuf::Descriptor& message, const v1::FieldHelp& shown_as) {
  std::set<std::string> fields;
  for (int i = 0; i < message.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *message.field(i);
    const v1::FieldHelp& help = field.options().GetExtension(v1::help);
    const auto& without = shown_as.without();
    if (std::find(without.begin(), without.end(), field.name()) != without.end()) continue;
    if (field.message_type() != nullptr) fields.merge(FieldsWithoutText(*field.message_type(), help));
    if (field.message_type() == nullptr && help.text().empty()) fields.insert(field.full_name());
  }
  return fields;
}

TEST_P(EveryConfigTest, EveryFieldHasAText) {
  EXPECT_THAT(FieldsWithoutText(*GetParam(), {}), IsEmpty());
}

TEST_P(EveryConfigTest, NamesInOptionsAreThoseOfFields) {
  for (int i = 0; i < GetParam()->field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *GetParam()->field(i);
    const v1::FieldHelp& help = field.options().GetExtension(v1::help);
    for (const auto& names : {help.without(), help.without_flag()}) {
      for (const std::string& name : names) EXPECT_NE(field.message_type()->FindFieldByName(name), nullptr) << name;
    }
    for (const auto& [name, instead] : help.instead()) {
      EXPECT_NE(field.message_type()->FindFieldByName(name), nullptr) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Configs, EveryConfigTest,
                         ::testing::Values(v1::AggregatorConfig::descriptor(), v1::LinkDaemonConfig::descriptor(),
                                           v1::WorkerConfig::descriptor(), v1::ProxyConfig::descriptor()),
                         [](const auto& info) { return std::string(info.param->name()); });

}  // namespace
}  // namespace sluice
