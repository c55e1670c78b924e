#include "proxy/proxy_config.h"

#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include "tests/has_code.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::HasCode;
using ::testing::HasSubstr;
using ::testing::StartsWith;

absl::StatusOr<ProxyProgramOptions> Parse(const std::string& json) {
  v1::ProxyConfig config;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(json, &config).ok()) << json;
  if (config.listen().empty() && config.routes().empty()) config.add_listen("127.0.0.1:0");
  return ParseProxyConfig(config);
}

TEST(ProxyConfigTest, TheDefaultsAreThoseOfTheLibrary) {
  const auto options = Parse("{}");
  ASSERT_TRUE(options.ok()) << options.status();
  const ProxyServer::Options& server = options->server;
  ASSERT_EQ(server.listeners.size(), 1U);
  EXPECT_EQ(server.listeners[0].address, "127.0.0.1:0");
  EXPECT_EQ(server.listeners[0].route, "");
  EXPECT_TRUE(server.workers.empty());
  EXPECT_TRUE(server.client_users.empty());
  EXPECT_FALSE(server.tls.has_value());
  EXPECT_FALSE(server.listeners[0].tls);
  EXPECT_FALSE(server.listener_tls.has_value());
  EXPECT_EQ(server.socket_mode, 0660U);
  EXPECT_EQ(server.proxy.worker_header, "");
  EXPECT_TRUE(server.proxy.pass_tunnels);
  EXPECT_TRUE(server.proxy.pass_worker_tunnels);
  EXPECT_TRUE(server.proxy.schedule_worker_tunnels);
  EXPECT_EQ(server.proxy.worker_tunnel_receive_bytes, 64 << 10);
  EXPECT_EQ(server.proxy.max_connections, ProxyOptions().max_connections);
  EXPECT_EQ(server.proxy.max_held_bytes_per_call, ProxyOptions().max_held_bytes_per_call);
  EXPECT_EQ(server.proxy.client_stall_timeout, std::chrono::seconds(60));
  EXPECT_EQ(server.proxy.half_closed_timeout, std::chrono::minutes(5));
  EXPECT_EQ(server.proxy.tunnel_idle_timeout, std::chrono::seconds(0));
  EXPECT_EQ(server.proxy.tunnel_stall_timeout, std::chrono::seconds(0));
  EXPECT_EQ(server.proxy.proxy_protocol_version, 2U);
  EXPECT_EQ(options->drain_timeout, absl::Seconds(10));
  EXPECT_EQ(options->server.proxy.max_connection_age, std::chrono::seconds(0));
  EXPECT_EQ(options->drain_delay, absl::ZeroDuration());
  EXPECT_EQ(options->reload_interval, absl::Seconds(2));
  EXPECT_EQ(options->link.schedule.policy, SchedulePolicy::kGrants);
}

TEST(ProxyConfigTest, RetriesHaveBounds) {
  EXPECT_EQ(Parse("{}")->server.proxy.max_attempts, 1U);
  const auto parsed = Parse(R"({"retries": {"max_attempts": 3, "max_tokens": 20, "token_ratio": 0.5}})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->server.proxy.max_attempts, 3U);
  EXPECT_EQ(parsed->server.proxy.retry_throttle.max_tokens, 20);
  EXPECT_EQ(parsed->server.proxy.retry_throttle.token_ratio, 0.5);
  const auto refused = [](const std::string& json) { return std::string(Parse(json).status().message()); };
  EXPECT_THAT(refused(R"({"retries": {"max_attempts": 6}})"),
              HasSubstr("retries.max_attempts: 6 is outside of 1 to 5"));
  EXPECT_THAT(refused(R"({"retries": {"max_attempts": 0}})"), HasSubstr("retries.max_attempts: 0"));
  EXPECT_THAT(refused(R"({"retries": {"max_tokens": 0}})"), HasSubstr("retries.max_tokens: 0 is not above 0"));
  EXPECT_THAT(refused(R"({"retries": {"token_ratio": 0}})"), HasSubstr("retries.token_ratio: 0 is not above 0"));
}

// The link of the proxy compares URIs, unlike gRPC's clients in the tools.
TEST(ProxyConfigTest, WorkersMayHaveAUriAsTheirName) {
  const auto options = Parse(R"({"tls": {"ca": "a.pem", "server_name": "spiffe://example/worker"}})");
  ASSERT_TRUE(options.ok()) << options.status();
  ASSERT_TRUE(options->server.tls.has_value());
  EXPECT_EQ(options->server.tls->server_name, "spiffe://example/worker");
}

TEST(ProxyConfigTest, EveryFieldIsTaken) {
  const auto options = Parse(R"({
    "listen": ["unix:/run/a", "tls:127.0.0.1:1"], "routes": [{"listen": "127.0.0.1:2", "workers": "w.svc:7000"}],
    "listener_tls": {"certificate": "c.pem", "key": "k.pem", "client_ca": "a.pem", "client_names": ["n", "spiffe://n"], "crl": "r.pem"},
    "admin": "127.0.0.1:3", "workers": ["10.0.0.0/8", "*.svc:7000"], "worker_header": "x-worker",
    "tunnels": {"to_workers": false, "to_others": false, "receive_window": "5kb", "scheduled": false,
                "traffic_class": "queries", "half_closed_timeout": "20s", "idle_timeout": "1h",
                "proxy_protocol": ["*.svc:6379"], "proxy_protocol_version": 1, "stall_timeout": "2h"},
    "limits": {"connections": 1, "calls": 2, "held": "5mb", "opening_timeout": "7s", "client_stall_timeout": "8s"},
    "clients": [{"uids": [9], "names": ["n"], "workers": ["a:1"], "traffic_class": "queries"}, {"uids": [10], "workers": ["b:1"]}],
    "socket_mode": "0600", "client_uids": [9, 10], "drain_timeout": "11s", "drain_delay": "12s",
    "max_connection_age": "1h",
    "reload_interval": "0", "schedule": {"policy": "rolling", "classes": [{"name": "queries", "weight": 3}]}})");
  ASSERT_TRUE(options.ok()) << options.status();
  const ProxyServer::Options& server = options->server;
  ASSERT_EQ(server.listeners.size(), 3U);
  EXPECT_FALSE(server.listeners[0].tls);
  EXPECT_EQ(server.listeners[1].address, "127.0.0.1:1");
  EXPECT_TRUE(server.listeners[1].tls);
  EXPECT_FALSE(server.listeners[2].tls);
  ASSERT_TRUE(server.listener_tls.has_value());
  EXPECT_EQ(server.listener_tls->files.certificate_file, "c.pem");
  EXPECT_EQ(server.listener_tls->files.key_file, "k.pem");
  EXPECT_EQ(server.listener_tls->files.client_ca_file, "a.pem");
  EXPECT_EQ(server.listener_tls->files.crl_file, "r.pem");
  EXPECT_THAT(server.listener_tls->client_names, ElementsAre("n", "spiffe://n"));
  EXPECT_EQ(server.listeners[2].address, "127.0.0.1:2");
  EXPECT_EQ(server.listeners[2].route, "w.svc:7000");
  EXPECT_EQ(options->admin, "127.0.0.1:3");
  EXPECT_THAT(server.workers, ElementsAre("10.0.0.0/8", "*.svc:7000"));
  EXPECT_EQ(server.proxy.worker_header, "x-worker");
  EXPECT_FALSE(server.proxy.pass_worker_tunnels);
  EXPECT_FALSE(server.proxy.schedule_worker_tunnels);
  EXPECT_FALSE(server.proxy.pass_tunnels);
  EXPECT_EQ(server.proxy.worker_tunnel_receive_bytes, 5 << 10);
  EXPECT_THAT(server.proxy_protocol, ElementsAre("*.svc:6379"));
  EXPECT_EQ(server.proxy.half_closed_timeout, std::chrono::seconds(20));
  EXPECT_EQ(server.proxy.tunnel_idle_timeout, std::chrono::hours(1));
  EXPECT_EQ(server.proxy.tunnel_stall_timeout, std::chrono::hours(2));
  EXPECT_EQ(server.proxy.proxy_protocol_version, 1U);
  EXPECT_EQ(server.proxy.max_connections, 1U);
  EXPECT_EQ(server.proxy.max_calls, 2U);
  EXPECT_EQ(server.proxy.max_held_bytes, 5 << 20);
  EXPECT_EQ(server.proxy.opening_timeout, std::chrono::seconds(7));
  EXPECT_EQ(server.proxy.client_stall_timeout, std::chrono::seconds(8));
  EXPECT_EQ(server.socket_mode, 0600U);
  EXPECT_THAT(server.client_users, ElementsAre(9, 10));
  EXPECT_THAT(
      server.clients,
      ElementsAre(ClientPolicies::Group{.users = {9}, .names = {"n"}, .workers = {"a:1"}, .traffic_class = "queries"},
                  ClientPolicies::Group{.users = {10}, .names = {}, .workers = {"b:1"}}));
  EXPECT_EQ(options->drain_timeout, absl::Seconds(11));
  EXPECT_EQ(options->server.proxy.max_connection_age, std::chrono::hours(1));
  EXPECT_EQ(options->server.proxy.max_connection_age_grace, std::chrono::seconds(11));
  EXPECT_EQ(options->drain_delay, absl::Seconds(12));
  EXPECT_EQ(options->reload_interval, absl::ZeroDuration());
  EXPECT_EQ(options->link.schedule.policy, SchedulePolicy::kRolling);
  ASSERT_EQ(options->link.schedule.classes.size(), 1U);
  EXPECT_EQ(options->link.schedule.classes[0].weight, 3);
  EXPECT_EQ(server.proxy.worker_tunnel_class, "queries");
}

TEST(ProxyConfigTest, AListenerIsWrittenAsInTheConfig) {
  using Kind = ProxyServer::Listener::Kind;
  const auto options = Parse(R"({
    "listen": ["127.0.0.1:1", "redirected:[::1]:2"],
    "routes": [{"listen": "tcp:127.0.0.1:3", "workers": "w.svc:6379"},
               {"listen": "tcp:unix:/run/w.sock", "workers": "w.svc:6379"}]})");
  ASSERT_TRUE(options.ok()) << options.status();
  const std::vector<ProxyServer::Listener>& listeners = options->server.listeners;
  ASSERT_EQ(listeners.size(), 4U);
  EXPECT_EQ(listeners[0].kind, Kind::kRequests);
  EXPECT_EQ(listeners[1].kind, Kind::kRedirected);
  EXPECT_EQ(listeners[1].address, "[::1]:2");
  EXPECT_EQ(listeners[2].kind, Kind::kTunnel);
  EXPECT_EQ(listeners[2].address, "127.0.0.1:3");
  EXPECT_EQ(listeners[2].route, "w.svc:6379");
  EXPECT_EQ(AddressInConfig(listeners[1], "[::1]:2"), "redirected:[::1]:2");
  EXPECT_EQ(AddressInConfig(listeners[3], listeners[3].address), "tcp:unix:/run/w.sock");
}

TEST(ProxyConfigTest, WhatIsWrongIsNamedWithItsValueAndItsBound) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"listen": ["foo"]})", "listen: \"foo\" is neither an IP address with a port nor a Unix socket"},
      {R"({"listen": ["tcp:127.0.0.1:1"]})", "listen: \"tcp:127.0.0.1:1\" has no workers; give it in routes"},
      {R"({"listen": ["redirected:unix:/run/a"]})", "listen: \"redirected:unix:/run/a\" must be redirected:host:port"},
      {R"({"routes": [{"listen": "redirected:127.0.0.1:1", "workers": "w:1"}]})", "must be redirected:host:port"},
      {R"({"listen": ["127.0.0.1"]})", "listen: \"127.0.0.1\" is neither"},
      {R"({"listen": ["127.0.0.1:99999"]})", "listen: \"127.0.0.1:99999\" is neither"},
      {R"({"listen": ["unix:"]})", "listen: \"unix:\" is neither"},
      {R"({"routes": [{"listen": "a:1", "workers": "w:1"}]})", "listen: \"a:1\" is neither"},
      {R"({"routes": [{"listen": "127.0.0.1:1"}]})", "routes[0] needs both listen and workers"},
      {R"({"routes": [{"listen": "a:1", "workers": "w:1"}, {"workers": "w:1"}]})", "routes[1]"},
      {R"({"routes": [{"listen": "127.0.0.1:1", "workers": "no-port"}]})", "routes: worker address \"no-port\""},
      {R"({"admin": "here"})", "admin: \"here\" has no port"},
      {R"({"workers": ["10.0.0.0/99"]})", "workers: \"10.0.0.0/99\""},
      {R"({"clients": [{"uids": [7], "workers": ["10.0.0.0/99"]}]})", "clients[0].workers: \"10.0.0.0/99\""},
      {R"({"clients": [{"workers": ["w:1"]}]})", "clients[0] names no clients"},
      {R"({"clients": [{"names": ["n"], "workers": ["w:1"]}]})", "clients[0].names is given without listener_tls"},
      {R"({"client_uids": [8], "clients": [{"uids": [7], "workers": ["w:1"]}]})",
       "clients[0].uids: 7 is not in client_uids, so that it may not connect"},
      {R"({"worker_header": "X-Worker"})", "worker_header is \"X-Worker\"; it must be the name of metadata"},
      {R"({"worker_header": "te"})", "worker_header is \"te\""},
      {R"({"worker_header": ":path"})", "worker_header is \":path\""},
      {R"({"limits": {"connections": 0}})", "limits.connections is 0; it must be 1 to 1048576"},
      {R"({"limits": {"calls": 0}})", "limits.calls is 0; it must be 1 to 16777216"},
      {R"({"limits": {"held": "1kb"}})", "limits.held is 1024; it must be 65536"},
      {R"({"limits": {"held": "-1"}})", "limits.held"},
      {R"({"limits": {"opening_timeout": "0"}})", "limits.opening_timeout must be above 0"},
      {R"({"limits": {"opening_timeout": "soon"}})", "limits.opening_timeout"},
      {R"({"limits": {"client_stall_timeout": "0s"}})", "limits.client_stall_timeout must be above 0"},
      {R"({"tunnels": {"proxy_protocol": ["10.0.0.0/99"]}})", "tunnels.proxy_protocol: \"10.0.0.0/99\""},
      {R"({"tunnels": {"proxy_protocol_version": 3}})", "tunnels.proxy_protocol_version is 3; it must be 1 to 2"},
      {R"({"tunnels": {"stall_timeout": "long"}})", "tunnels.stall_timeout"},
      {R"({"tunnels": {"receive_window": "wide"}})", "tunnels.receive_window"},
      {R"({"tunnels": {"receive_window": "1kb"}})", "tunnels.receive_window is 1024; it must be 0, or 4096 to"},
      {R"({"tunnels": {"receive_window": "2gb"}})", "tunnels.receive_window is 2147483648; it must be 0, or"},
      {R"({"socket_mode": "0888"})", "socket_mode is \"0888\"; it must be octal, 0 to 0777"},
      {R"({"socket_mode": "1777"})", "socket_mode is \"1777\""},
      {R"({"socket_mode": "rw-"})", "socket_mode is \"rw-\""},
      {R"({"drain_timeout": "long"})", "drain_timeout"},
      {R"({"max_connection_age": "0"})", "max_connection_age is 0; it must be 1s to 24h"},
      {R"({"max_connection_age": "25h"})", "max_connection_age is 25h; it must be 1s to 24h"},
      {R"({"drain_delay": "long"})", "drain_delay"},
      {R"({"reload_interval": "long"})", "reload_interval"},
      {R"({"schedule": {"policy": "batches"}})", "policy is batches"},
      {R"({"schedule": {"policy": "none"}})", "none"},
      {R"({"link": {"capacity": "fast"}})", "capacity"},
      {R"({"tls": {"ca": "ca.pem", "certificate": "c.pem", "key": "k.pem"}})", "listen: \"127.0.0.1:0\""},
      {R"({"tls": {"ca": "ca.pem", "certificate": "c.pem"}})", "key"},
      {R"({"listen": ["tls:127.0.0.1:0"]})", "listen: \"tls:127.0.0.1:0\" without listener_tls"},
      {R"({"routes": [{"listen": "tls:127.0.0.1:0", "workers": "w:1"}]})", "\"tls:127.0.0.1:0\" without listener_tls"},
      {R"({"listener_tls": {"certificate": "c", "key": "k", "client_ca": "a"}})", "listener_tls is given and has no"},
      {R"({"listen": ["tls:127.0.0.1:0"], "listener_tls": {}})", "listener_tls.certificate is empty"},
      {R"({"listen": ["tls:127.0.0.1:0"], "listener_tls": {"certificate": "c"}})", "listener_tls.key is empty"},
      {R"({"listen": ["tls:127.0.0.1:0"], "listener_tls": {"certificate": "c", "key": "k"}})",
       "listener_tls.client_ca is empty; a listener with TLS needs"},
      {R"({"listen": ["tls:127.0.0.1:0"],
           "listener_tls": {"certificate": "c", "key": "k", "client_ca": "a", "client_names": ["a b"]}})",
       "listener_tls.client_names: \"a b\" is not 1 to 2048"},
      {R"({"listen": ["tls:unix:/s"], "listener_tls": {"certificate": "c", "key": "k", "client_ca": "a"}})",
       "listen: \"tls:unix:/s\" must be tls:host:port"},
  };
  for (const auto& [json, named] : cases) {
    const absl::Status refused = Parse(json).status();
    EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument)) << json;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(named)) << json;
  }
  EXPECT_THAT(std::string(ParseProxyConfig({}).status().message()), HasSubstr("listen is empty"));
}

v1::ProxyConfig WithListenerTls(const std::string& json) {
  v1::ProxyConfig config;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(json, &config).ok()) << json;
  config.add_listen("tls:127.0.0.1:0");
  v1::ProxyListenerTls& tls = *config.mutable_listener_tls();
  if (tls.certificate().empty()) tls.set_certificate("c.pem");
  if (tls.key().empty()) tls.set_key("k.pem");
  if (tls.client_ca().empty()) tls.set_client_ca("a.pem");
  if (tls.client_names().empty()) tls.add_client_names("front");
  return config;
}

TEST(ProxyConfigTest, WhatBeginsFromNowOnMayChange) {
  for (const char* json : {R"({"worker_header": "x-worker", "log_level": "debug"})",
                           R"({"tunnels": {"to_others": false}, "limits": {"calls": 1}, "link": {"buffer": "1mb"}})",
                           R"({"clients": [{"names": ["front"], "workers": ["10.0.0.0/8"]}]})",
                           R"({"schedule": {"budget": "1mb", "queue_limit": 7, "queue_timeout": "1s"}})"}) {
    EXPECT_TRUE(CheckReloadable(WithListenerTls("{}"), WithListenerTls(json)).ok()) << json;
    EXPECT_TRUE(CheckReloadable(WithListenerTls(json), WithListenerTls("{}")).ok()) << json;
  }
}

// No patterns are all private networks, so a file that has lost them would open all of these.
TEST(ProxyConfigTest, PatternsMayChangeAndNotVanish) {
  const v1::ProxyConfig before = WithListenerTls(R"({"workers": ["10.7.0.0/16"]})");
  EXPECT_TRUE(CheckReloadable(WithListenerTls("{}"), before).ok());
  EXPECT_TRUE(CheckReloadable(before, WithListenerTls(R"({"workers": ["10.8.0.0/16"]})")).ok());
  EXPECT_TRUE(CheckReloadable(before, WithListenerTls(R"({"workers": ["private"]})")).ok());
  const absl::Status refused = CheckReloadable(before, WithListenerTls("{}"));
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("workers is empty, and was not before"));
}

TEST(ProxyConfigTest, TunnelsToOthersAreForUnixSocketsUnlessAskedFor) {
  const auto parsed = [](const std::string& json) {
    const auto options = ParseProxyConfig(WithListenerTls(json));
    EXPECT_TRUE(options.ok()) << options.status();
    return std::pair(options->server.proxy.pass_tunnels, options->server.proxy.pass_tunnels_from_loopback);
  };
  EXPECT_EQ(parsed("{}"), std::pair(true, false));
  EXPECT_EQ(parsed(R"({"tunnels": {"to_others": true}})"), std::pair(true, true));
  EXPECT_EQ(parsed(R"({"tunnels": {"to_others": false}})"), std::pair(false, false));
}

TEST(ProxyConfigTest, LimitsFollowTheMemoryOfTheProcess) {
  const auto parsed = [](const std::string& json, std::optional<int64_t> memory_bytes) {
    const auto options = ParseProxyConfig(WithListenerTls(json), memory_bytes);
    EXPECT_TRUE(options.ok()) << options.status();
    return options->server.proxy;
  };
  const ProxyOptions by_default;
  for (const int64_t memory_bytes : {int64_t{64} << 20, int64_t{256} << 20, int64_t{512} << 20, int64_t{1} << 30}) {
    const ProxyOptions options = parsed("{}", memory_bytes);
    EXPECT_LE(MemoryOfLimits(options), memory_bytes / 4 * 3) << memory_bytes;
    EXPECT_GE(MemoryOfLimits(options), memory_bytes / 2) << memory_bytes;
  }
  for (const std::optional<int64_t> memory_bytes : {std::optional<int64_t>(), std::optional(int64_t{16} << 30)}) {
    EXPECT_EQ(parsed("{}", memory_bytes).max_connections, by_default.max_connections);
    EXPECT_EQ(parsed("{}", memory_bytes).max_held_bytes, by_default.max_held_bytes);
  }
  const ProxyOptions given = parsed(R"({"limits": {"held": "200mb", "calls": 70000}})", 256 << 20);
  EXPECT_EQ(given.max_held_bytes, 200 << 20);
  EXPECT_EQ(given.max_calls, 70000U);
  EXPECT_EQ(given.max_connections, 3276U) << "a quarter of the memory";
}

TEST(ProxyConfigTest, AGroupOfClientsHasItsShareOfTheLimits) {
  const auto options = ParseProxyConfig(WithListenerTls(
      R"({"clients": [{"names": ["front"], "workers": ["10.0.0.0/8"], "group": "search", "weight": 2.5,
          "limits": {"connections": 10, "calls": 20, "targets": 30, "held": "1mb"}},
          {"names": ["back"], "workers": ["10.0.0.0/8"]}], "limits": {"targets": 1000}})"));
  ASSERT_TRUE(options.ok()) << options.status();
  const ClientShare expected{
      .name = "search", .weight = 2.5, .connections = 10, .calls = 20, .targets = 30, .held_bytes = 1 << 20};
  EXPECT_EQ(options->server.clients[0].share, expected);
  EXPECT_EQ(options->server.clients[1].share, ClientShare());
  EXPECT_EQ(options->server.proxy.max_targets, 1000U);
  for (const auto& [json, why] : {std::pair(R"("weight": 0)", "clients[0].weight is 0"),
                                  std::pair(R"("limits": {"calls": 0})", "clients[0].limits.calls is 0"),
                                  std::pair(R"("limits": {"held": "a"})", "clients[0].limits.held")}) {
    const auto refused = ParseProxyConfig(
        WithListenerTls(absl::StrCat(R"({"clients": [{"names": ["front"], "workers": ["10.0.0.0/8"], )", json, "}]}")));
    EXPECT_THAT(refused.status(), HasCode(absl::StatusCode::kInvalidArgument)) << json;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr(why));
  }
}

TEST(ProxyConfigTest, TheWeightOfAClassMayChangeAndItsNameMayNot) {
  const v1::ProxyConfig before = WithListenerTls(R"({"schedule": {"classes": [{"name": "scan", "weight": 1}]}})");
  EXPECT_TRUE(
      CheckReloadable(before, WithListenerTls(R"({"schedule": {"classes": [{"name": "scan", "weight": 2}]}})")).ok());
  const absl::Status renamed =
      CheckReloadable(before, WithListenerTls(R"({"schedule": {"classes": [{"name": "other", "weight": 1}]}})"));
  EXPECT_THAT(renamed, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(renamed.message()), HasSubstr("schedule.classes[0].name: \"scan\" -> \"other\""));
}

TEST(ProxyConfigTest, WhatNeedsARestartIsNamedWithWhatItWasAndIs) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"listener_tls": {"certificate": "new.pem"}})", "listener_tls.certificate: \"c.pem\" -> \"new.pem\""},
      {R"({"listener_tls": {"key": "new.pem"}})", "listener_tls.key: \"k.pem\" -> \"new.pem\""},
      {R"({"listener_tls": {"client_ca": "new.pem"}})", "listener_tls.client_ca: \"a.pem\" -> \"new.pem\""},
      {R"({"listener_tls": {"client_names": ["back"]}})", "listener_tls.client_names[0]: \"front\" -> \"back\""},
      {R"({"listener_tls": {"client_names": ["front", "back"]}})", "added: listener_tls.client_names[1]: \"back\""},
      {R"({"tls": {"ca": "a.pem"}})", "added: tls: { ca: \"a.pem\" }"},
      {R"({"routes": [{"listen": "127.0.0.1:1", "workers": "w:1"}]})", "added: routes[0]: { listen: \"127.0.0.1:1\""},
      {R"({"client_uids": [7]})", "added: client_uids[0]: 7"},
      {R"({"socket_mode": "0600"})", "added: socket_mode: \"0600\""},
      {R"({"schedule": {"classes": [{"name": "scan"}]}})", "added: schedule.classes[0]: { name: \"scan\" }"},
  };
  for (const auto& [json, named] : cases) {
    const absl::Status refused = CheckReloadable(WithListenerTls("{}"), WithListenerTls(json));
    EXPECT_THAT(refused, HasCode(absl::StatusCode::kFailedPrecondition)) << json;
    EXPECT_THAT(std::string(refused.message()), AllOf(StartsWith("needs a restart: "), HasSubstr(named)));
  }
  v1::ProxyConfig without = WithListenerTls("{}");
  without.clear_listener_tls();
  EXPECT_THAT(std::string(CheckReloadable(WithListenerTls("{}"), without).message()),
              StartsWith("needs a restart: deleted: listener_tls: { certificate: \"c.pem\""));
}

}  // namespace
}  // namespace sluice
