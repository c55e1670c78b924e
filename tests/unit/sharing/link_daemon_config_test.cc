#include "link/link_daemon_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;

v1::LinkDaemonConfig Config() {
  v1::LinkDaemonConfig config;
  config.set_socket("/run/link.sock");
  config.mutable_link()->set_capacity("8mbit");  // a byte takes a microsecond
  config.mutable_link()->set_buffer("32kb");
  config.mutable_link()->set_rtt("1ms");
  return config;
}

LinkDivider::Options Shares(const v1::LinkDaemonConfig& config) {
  const auto options = ParseLinkDaemonConfig(config);
  EXPECT_TRUE(options.ok()) << options.status();
  return options.ok() ? options->server.shares : LinkDivider::Options();
}

TEST(ParseLinkDaemonConfigTest, WhatIsGoneDrainsAsLongAsAllOfTheBudgetTakes) {
  v1::LinkDaemonConfig config = Config();
  EXPECT_EQ(Shares(config).drain_time, 1ms + std::chrono::microseconds(32 * 1024));
  config.set_budget("16kb");
  EXPECT_EQ(Shares(config).drain_time, 1ms + std::chrono::microseconds(32 * 1024));
  config.set_budget("64kb");
  EXPECT_EQ(Shares(config).drain_time, 1ms + std::chrono::microseconds(64 * 1024));
}

TEST(ParseLinkDaemonConfigTest, TheWeightOfAUserHasABound) {
  v1::LinkDaemonConfig config = Config();
  EXPECT_FALSE(ParseLinkDaemonConfig(config)->server.max_uid_weight.has_value());
  config.set_max_uid_weight(3);
  EXPECT_EQ(ParseLinkDaemonConfig(config)->server.max_uid_weight, 3);
  config.set_max_uid_weight(0);
  EXPECT_THAT(std::string(ParseLinkDaemonConfig(config).status().message()), ::testing::HasSubstr("max_uid_weight: 0"));
}

TEST(ParseLinkDaemonConfigTest, ANewDaemonWaitsUntilLeasesOfTheLastHaveEnded) {
  v1::LinkDaemonConfig config = Config();
  EXPECT_EQ(Shares(config).start_grace, 350ms);
  config.set_lease_time("20ms");
  EXPECT_EQ(Shares(config).start_grace, 300ms);
  config.set_lease_time("1s");
  EXPECT_EQ(Shares(config).start_grace, 1100ms);
}

}  // namespace
}  // namespace sluice
