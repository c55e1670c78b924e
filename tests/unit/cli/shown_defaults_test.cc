// The defaults that --help and docs/reference/config.md show are those of the parsers: a config in which they are
// written out means the same as one without them.
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include "sluice/v1/config.pb.h"

#include "absl/strings/str_cat.h"
#include "aggregator/aggregator_config.h"
#include "lib/cli/config_flags.h"
#include "lib/cli/logging.h"
#include "link/link_daemon_config.h"
#include "proxy/proxy_config.h"
#include "worker/worker_config.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsSupersetOf;

// Returns whether a default is a value of its field, and not a description such as "the user of this process".
bool IsValue(const std::string& text) {
  return !text.empty() && text != "none" && text != "any" && text.find(' ') == std::string::npos;
}

// Writes the shown defaults into a config, by its flags, and returns the fields that were written.
std::set<std::string> WriteShownDefaults(google::protobuf::Message& config) {
  std::set<std::string> fields;
  std::vector<std::string> arguments;
  for (const ConfigField& field : ConfigFields(*config.GetDescriptor())) {
    if (field.flag.empty() || !IsValue(field.help.default_text())) continue;
    if (field.name == "shared_link.weight") continue;  // it would need a socket
    fields.insert(field.name);
    arguments.push_back(absl::StrCat("--", field.flag, "=", field.help.default_text()));
  }
  CLI::App app;
  ConfigFlags(config).AddTo(app);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 expects them
  app.parse(std::move(arguments));
  return fields;
}

TEST(ShownDefaultsTest, AreThoseOfTheAggregator) {
  v1::AggregatorConfig config;
  config.set_listen("127.0.0.1:0");
  config.add_workers("a:1");
  const auto expected = ParseAggregatorConfig(config);
  EXPECT_THAT(WriteShownDefaults(config),
              IsSupersetOf({"link.capacity", "link.jitter", "schedule.policy", "attempts", "mid_level.cache"}));
  const auto shown = ParseAggregatorConfig(config);
  ASSERT_TRUE(expected.ok() && shown.ok()) << expected.status() << shown.status();
  EXPECT_EQ(shown->link.schedule.profile, expected->link.schedule.profile);
  EXPECT_EQ(shown->link.schedule.policy, expected->link.schedule.policy);
  EXPECT_EQ(shown->link.schedule.queue_limit, expected->link.schedule.queue_limit);
  EXPECT_EQ(shown->link.worker_connections, expected->link.worker_connections);
  EXPECT_EQ(shown->reader.sru_timeout, expected->reader.sru_timeout);
  EXPECT_EQ(shown->reader.block_timeout, expected->reader.block_timeout);
  EXPECT_EQ(shown->reader.connect_timeout, expected->reader.connect_timeout);
  EXPECT_EQ(shown->reader.attempts, expected->reader.attempts);
  EXPECT_EQ(shown->reader.segment_bytes, expected->reader.segment_bytes);
  EXPECT_EQ(shown->read_memory_bytes, expected->read_memory_bytes);
  EXPECT_EQ(shown->reload_interval, expected->reload_interval);
  EXPECT_EQ(shown->rpc_server.drain_delay, expected->rpc_server.drain_delay);
  EXPECT_EQ(shown->rpc_server.drain_timeout, expected->rpc_server.drain_timeout);
  EXPECT_EQ(shown->rpc_server.reflection, expected->rpc_server.reflection);
  EXPECT_EQ(shown->rpc_server.max_connection_idle, expected->rpc_server.max_connection_idle);
  ASSERT_TRUE(shown->mid_level.has_value());
  EXPECT_EQ(shown->mid_level->cache_bytes, MidLevel::Options().cache_bytes);
  EXPECT_EQ(shown->mid_level->deadline_reserve, MidLevel::Options().deadline_reserve);
  EXPECT_EQ(*ParseLogLevel(config.log_level()), *ParseLogLevel(""));
}

TEST(ShownDefaultsTest, AreThoseOfTheWorker) {
  v1::WorkerConfig config;
  config.add_listen("127.0.0.1:0");
  config.set_data("/data");
  const auto expected = ParseWorkerConfig(config);
  EXPECT_THAT(WriteShownDefaults(config), ElementsAre("drain_delay", "drain_timeout", "log_level",
                                                      "max_connection_idle", "probe", "reflection", "think_time"));
  const auto shown = ParseWorkerConfig(config);
  ASSERT_TRUE(expected.ok() && shown.ok()) << expected.status() << shown.status();
  EXPECT_EQ(shown->think_time.usual, expected->think_time.usual);
  EXPECT_EQ(shown->probe, expected->probe);
  EXPECT_EQ(shown->rpc_server.drain_delay, expected->rpc_server.drain_delay);
  EXPECT_EQ(shown->rpc_server.drain_timeout, expected->rpc_server.drain_timeout);
  EXPECT_EQ(shown->rpc_server.reflection, expected->rpc_server.reflection);
  EXPECT_EQ(shown->rpc_server.max_connection_idle, expected->rpc_server.max_connection_idle);
  EXPECT_EQ(*ParseLogLevel(config.log_level()), *ParseLogLevel(""));
}

TEST(ShownDefaultsTest, AreThoseOfTheProxy) {
  v1::ProxyConfig config;
  config.add_listen("127.0.0.1:0");
  const auto expected = ParseProxyConfig(config);
  EXPECT_THAT(WriteShownDefaults(config), IsSupersetOf({"limits.calls", "tunnels.receive_window", "workers"}));
  const auto shown = ParseProxyConfig(config);
  ASSERT_TRUE(expected.ok() && shown.ok()) << expected.status() << shown.status();
  EXPECT_EQ(shown->link.schedule.profile, expected->link.schedule.profile);
  EXPECT_EQ(shown->link.schedule.policy, expected->link.schedule.policy);
  EXPECT_EQ(shown->link.schedule.queue_limit, expected->link.schedule.queue_limit);
  EXPECT_THAT(shown->server.workers, ElementsAre("private")) << "what an empty list stands for";
  EXPECT_EQ(shown->server.socket_mode, expected->server.socket_mode);
  EXPECT_EQ(shown->server.proxy.max_connections, expected->server.proxy.max_connections);
  EXPECT_EQ(shown->server.proxy.max_calls, expected->server.proxy.max_calls);
  EXPECT_EQ(shown->server.proxy.max_held_bytes, expected->server.proxy.max_held_bytes);
  EXPECT_EQ(shown->server.proxy.opening_timeout, expected->server.proxy.opening_timeout);
  EXPECT_EQ(shown->server.proxy.client_stall_timeout, expected->server.proxy.client_stall_timeout);
  EXPECT_EQ(shown->server.proxy.proxy_protocol_version, expected->server.proxy.proxy_protocol_version);
  EXPECT_EQ(shown->server.proxy.tunnel_stall_timeout, expected->server.proxy.tunnel_stall_timeout);
  EXPECT_EQ(shown->server.proxy.pass_tunnels, expected->server.proxy.pass_tunnels);
  EXPECT_EQ(shown->server.proxy.pass_worker_tunnels, expected->server.proxy.pass_worker_tunnels);
  EXPECT_EQ(shown->server.proxy.schedule_worker_tunnels, expected->server.proxy.schedule_worker_tunnels);
  EXPECT_EQ(shown->server.proxy.worker_tunnel_receive_bytes, expected->server.proxy.worker_tunnel_receive_bytes);
  EXPECT_EQ(shown->drain_delay, expected->drain_delay);
  EXPECT_EQ(shown->drain_timeout, expected->drain_timeout);
  EXPECT_EQ(shown->reload_interval, expected->reload_interval);
  EXPECT_EQ(*ParseLogLevel(config.log_level()), *ParseLogLevel(""));
}

TEST(ShownDefaultsTest, AreThoseOfTheLinkDaemon) {
  v1::LinkDaemonConfig config;
  config.set_socket("/run/link.sock");
  config.mutable_link()->set_buffer("32kb");
  const auto expected = ParseLinkDaemonConfig(config);
  EXPECT_THAT(WriteShownDefaults(config), IsSupersetOf({"lease_time", "link.mtu", "mode", "socket_mode"}));
  const auto shown = ParseLinkDaemonConfig(config);
  ASSERT_TRUE(expected.ok() && shown.ok()) << expected.status() << shown.status();
  EXPECT_EQ(shown->profile, expected->profile);
  EXPECT_EQ(shown->server.socket_mode, expected->server.socket_mode);
  EXPECT_EQ(shown->server.shares.mode, expected->server.shares.mode);
  EXPECT_EQ(shown->server.shares.lease_time, expected->server.shares.lease_time);
  EXPECT_EQ(shown->server.shares.budget_bytes, expected->server.shares.budget_bytes);
  EXPECT_EQ(*ParseLogLevel(config.log_level()), *ParseLogLevel(""));
}

}  // namespace
}  // namespace sluice
