#include "lib/cli/link_profile_flags.h"

#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ParseLinkProfileTest, EmptyFieldsKeepTheDefaults) {
  const auto profile = ParseLinkProfile(v1::LinkProfile());
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(*profile, LinkProfile());
}

TEST(ParseLinkProfileTest, ReadsEveryField) {
  v1::LinkProfile config;
  config.set_capacity("100mbit");
  config.set_buffer("32000");
  config.set_rtt("150us");
  config.set_packet_payload(1000);
  config.set_frame(1040);
  config.set_ack(40);
  config.set_timer_granularity("1ms");
  config.set_jitter("20us");
  config.set_initial_window(1);
  config.set_connections("fresh");
  const auto profile = ParseLinkProfile(config);
  ASSERT_TRUE(profile.ok()) << profile.status();
  const LinkProfile expected{.capacity_bytes_per_second = 12.5e6,
                             .buffer_bytes = 32000,
                             .buffer_packets = 0,
                             .propagation_rtt = absl::Microseconds(150),
                             .packet_payload_bytes = 1000,
                             .frame_bytes = 1040,
                             .ack_frame_bytes = 40,
                             .timer_granularity = absl::Milliseconds(1),
                             .timer_jitter = absl::Microseconds(20),
                             .fresh_connections = true,
                             .initial_window_packets = 1};
  EXPECT_EQ(*profile, expected);
}

TEST(ParseLinkProfileTest, ABufferInPacketsReplacesTheOneInBytes) {
  v1::LinkProfile config;
  config.set_buffer("100p");
  const auto profile = ParseLinkProfile(config);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->buffer_bytes, 0);
  EXPECT_EQ(profile->buffer_packets, 100);
}

TEST(ParseLinkProfileTest, MtuSetsTheSizesThatAreNotGiven) {
  v1::LinkProfile config;
  config.set_mtu(9000);
  config.set_ack(60);
  config.set_buffer("1mb");
  const auto profile = ParseLinkProfile(config);
  ASSERT_TRUE(profile.ok()) << profile.status();
  LinkProfile jumbo;
  jumbo.SetMtu(9000);
  EXPECT_EQ(profile->packet_payload_bytes, jumbo.packet_payload_bytes);
  EXPECT_EQ(profile->frame_bytes, jumbo.frame_bytes);
  EXPECT_NE(profile->frame_bytes, LinkProfile().frame_bytes);
  EXPECT_EQ(profile->ack_frame_bytes, 60);
}

TEST(ParseLinkProfileTest, NamesTheFieldThatIsWrong) {
  struct Case {
    std::function<void(v1::LinkProfile&)> set;
    const char* field;
    const char* value;
  };
  const std::vector<Case> table = {
      {[](auto& config) { config.set_capacity("abc"); }, "link.capacity: ", "\"abc\" is not a rate"},
      {[](auto& config) { config.set_buffer("big"); }, "link.buffer: ", "\"big\""},
      {[](auto& config) { config.set_buffer("32"); }, "link: buffer_bytes is 32", "did you mean 32kb"},
      {[](auto& config) { config.set_rtt("10"); }, "link.rtt: ", "\"10\""},
      {[](auto& config) { config.set_mtu(67); }, "link.mtu: ", "67"},
      {[](auto& config) { config.set_mtu(65536); }, "link.mtu: ", "65536"},
      {[](auto& config) { config.set_timer_granularity("-1us"); }, "link.timer_granularity: ", "\"-1us\""},
      {[](auto& config) { config.set_jitter("inf"); }, "link.jitter: ", "\"inf\""},
      {[](auto& config) { config.set_connections("warm"); }, "link.connections: ", "\"warm\""},
      {[](auto& config) { config.set_frame(-1); }, "link: ", "-1"},
      {[](auto& config) { config.set_initial_window(-1); }, "link: ", "-1"}};
  for (const Case& wrong : table) {
    v1::LinkProfile config;
    wrong.set(config);
    const auto profile = ParseLinkProfile(config);
    ASSERT_FALSE(profile.ok()) << config.ShortDebugString();
    EXPECT_EQ(profile.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(profile.status().message()), AllOf(StartsWith(wrong.field), HasSubstr(wrong.value)));
  }
}

TEST(AddLinkProfileFlagsTest, WritesEveryFlagThatIsGiven) {
  v1::LinkProfile config;
  CLI::App app;
  AddLinkProfileFlags(app, config);
  app.parse(
      "--capacity 1gbit --buffer 32000 --rtt 100us --mtu 1500 --packet_payload 1000 --frame 1040 --ack 40 "
      "--timer_granularity 1ms --jitter 20us --initial_window 1 --connections fresh");
  EXPECT_EQ(config.ShortDebugString(),
            "capacity: \"1gbit\" buffer: \"32000\" rtt: \"100us\" mtu: 1500 packet_payload: 1000 frame: 1040 ack: 40 "
            "timer_granularity: \"1ms\" jitter: \"20us\" initial_window: 1 connections: \"fresh\"");
}

TEST(AddLinkProfileFlagsTest, LeavesTheOtherFieldsAlone) {
  v1::LinkProfile config;
  config.set_capacity("100mbit");
  config.set_mtu(9000);
  CLI::App app;
  AddLinkProfileFlags(app, config);
  app.parse("--mtu 1500");
  EXPECT_EQ(config.ShortDebugString(), "capacity: \"100mbit\" mtu: 1500");
}

TEST(AddLinkProfileFlagsTest, HasAHelpGroupOfItsOwn) {
  v1::LinkProfile config;
  CLI::App app;
  AddLinkProfileFlags(app, config);
  EXPECT_THAT(app.help(), HasSubstr("Bottleneck link:"));
}

}  // namespace
}  // namespace sluice
