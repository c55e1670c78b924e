#include "lib/cli/tls_flags.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include "lib/cli/logging.h"
#include "tests/unit/storage/stripe/striped_folder.h"
#include "tests/unit/tls/test_authority.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

v1::TlsConfig Config(const std::string& json) {
  v1::TlsConfig config;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(json, &config).ok()) << json;
  return config;
}

absl::StatusOr<TlsSettings> Parse(const std::string& json, TlsRole role) {
  return ParseTlsConfig(Config(json), role);
}

TEST(ParseTlsConfigTest, RevocationListsAreForTheAuthoritiesThatAreGiven) {
  const auto both =
      Parse(R"({"certificate": "c", "key": "k", "clientCa": "cc", "ca": "a", "crl": "r"})", TlsRole::kServerAndClient);
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->server->crl_file, "r");
  EXPECT_EQ(both->client->crl_file, "r");
  const auto one = Parse(R"({"certificate": "c", "key": "k", "ca": "a", "crl": "r"})", TlsRole::kServerAndClient);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->server->crl_file, "") << "its clients show no certificate";
  EXPECT_EQ(one->client->crl_file, "r");
  EXPECT_THAT(
      std::string(Parse(R"({"certificate": "c", "key": "k", "crl": "r"})", TlsRole::kServer).status().message()),
      HasSubstr("tls.crl is \"r\" without tls.client_ca"));
  for (const TlsRole role : {TlsRole::kClient, TlsRole::kServerAndClient}) {
    EXPECT_THAT(std::string(Parse(R"({"crl": "r"})", role).status().message()),
                HasSubstr("tls.crl is \"r\" without tls.ca"));
  }
}

TEST(ParseTlsConfigTest, WithoutFieldsThereIsNoTls) {
  for (const TlsRole role : {TlsRole::kServer, TlsRole::kClient, TlsRole::kServerAndClient}) {
    const auto settings = Parse("{}", role);
    ASSERT_TRUE(settings.ok()) << settings.status();
    EXPECT_FALSE(settings->server.has_value());
    EXPECT_FALSE(settings->client.has_value());
  }
}

TEST(ParseTlsConfigTest, ACertificateIsForTheServerAndACaForItsCalls) {
  const auto server = Parse(R"({"certificate": "c", "key": "k"})", TlsRole::kServerAndClient);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(server->server, (ServerTls{.certificate_file = "c", .key_file = "k", .client_ca_file = ""}));
  EXPECT_FALSE(server->client.has_value());

  const auto client = Parse(R"({"ca": "a"})", TlsRole::kServerAndClient);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_FALSE(client->server.has_value());
  EXPECT_EQ(client->client, TlsOptions{.ca_file = "a"});

  const auto both = Parse(R"({"certificate": "c", "key": "k", "ca": "a", "client_ca": "b", "server_name": "n"})",
                          TlsRole::kServerAndClient);
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->server, (ServerTls{.certificate_file = "c", .key_file = "k", .client_ca_file = "b"}));
  EXPECT_EQ(both->client, (TlsOptions{.ca_file = "a", .certificate_file = "c", .key_file = "k", .server_name = "n"}));
}

TEST(ParseTlsConfigTest, TheSystemsAuthoritiesHaveAName) {
  const auto settings = Parse(R"({"ca": "system"})", TlsRole::kClient);
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->client, TlsOptions());
}

TEST(ParseTlsConfigTest, WhatHasNoEffectIsRefusedByName) {
  struct Case {
    const char* json;
    TlsRole role;
    const char* error;
  };
  const Case cases[] = {
      {R"({"certificate": "c"})", TlsRole::kServer, "tls.certificate is \"c\" without tls.key"},
      {R"({"key": "k"})", TlsRole::kServerAndClient, "tls.key is \"k\" without tls.certificate"},
      {R"({"client_ca": "b"})", TlsRole::kServer, "tls.client_ca is \"b\" without tls.certificate"},
      {R"({"certificate": "c", "key": "k", "ca": "a"})", TlsRole::kServer, "tls.ca is \"a\" and has no effect"},
      {R"({"server_name": "n"})", TlsRole::kServer, "tls.server_name is \"n\" and has no effect"},
      {R"({"server_name": "n"})", TlsRole::kClient, "tls.server_name is \"n\" without tls.ca"},
      {R"({"certificate": "c", "key": "k"})", TlsRole::kClient, "tls.certificate is \"c\" without tls.ca"},
      {R"({"ca": "a", "certificate": "c"})", TlsRole::kClient, "tls.certificate is \"c\" without tls.key"},
      {R"({"ca": "a", "certificate": "c", "key": "k", "client_ca": "b"})", TlsRole::kClient,
       "tls.client_ca is \"b\" and has no effect"},
  };
  for (const Case& bad : cases) {
    const absl::Status status = Parse(bad.json, bad.role).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad.json;
    EXPECT_THAT(std::string(status.message()), StartsWith(bad.error)) << bad.json;
  }
}

TEST(CheckTlsFilesTest, LooksAtTheFilesOfBothDirections) {
  const testing::TemporaryFolder folder;
  testing::TestAuthority authority(folder.path(), "authority");
  const testing::TestIdentity identity = authority.Issue("server");
  const auto check = [](const ServerTls& server, const TlsOptions& client) {
    return CheckTlsFiles({.server = server, .client = client});
  };
  const ServerTls server{
      .certificate_file = identity.certificate_file, .key_file = identity.key_file, .client_ca_file = authority.file()};
  const TlsOptions client{
      .ca_file = authority.file(), .certificate_file = identity.certificate_file, .key_file = identity.key_file};
  EXPECT_TRUE(CheckTlsFiles({}).ok());
  EXPECT_TRUE(check(server, client).ok()) << check(server, client);
  EXPECT_TRUE(check(server, {}).ok()) << "the authorities of the system are no file";
  ServerTls bad_server = server;
  bad_server.client_ca_file = "/none";
  EXPECT_THAT(std::string(check(bad_server, client).message()), StartsWith("tls.client_ca: \"/none\""));
  TlsOptions bad_client = client;
  bad_client.ca_file = identity.key_file;
  EXPECT_THAT(std::string(check(server, bad_client).message()), StartsWith("tls.ca: \"" + identity.key_file));
  bad_client = client;
  bad_client.key_file = "/none";
  EXPECT_THAT(std::string(check(server, bad_client).message()), StartsWith("tls.key: \"/none\""));
}

// Returns the config of a program with these flags.
v1::TlsConfig ParseFlags(TlsRole role, std::vector<std::string> arguments, v1::TlsConfig config = {}) {
  CLI::App app;
  AddTlsFlags(app, config, role);
  std::reverse(arguments.begin(), arguments.end());
  app.parse(std::move(arguments));
  return config;
}

TEST(TlsFlagsTest, EachFlagIsAField) {
  const v1::TlsConfig config =
      ParseFlags(TlsRole::kServerAndClient,
                 {"--tls_certificate", "c", "--tls_key=k", "--tls_ca=a", "--tls_client_ca=b", "--tls_server_name=n"});
  EXPECT_EQ(config.SerializeAsString(),
            Config(R"({"certificate": "c", "key": "k", "ca": "a", "client_ca": "b", "server_name": "n"})")
                .SerializeAsString());
}

TEST(TlsFlagsTest, AFlagWinsOverTheConfig) {
  EXPECT_EQ(ParseFlags(TlsRole::kClient, {"--tls_ca", ""}, Config(R"({"ca": "a"})")).ca(), "");
  EXPECT_EQ(ParseFlags(TlsRole::kClient, {}, Config(R"({"ca": "a"})")).ca(), "a");
}

TEST(TlsFlagsTest, ARoleHasNoFlagsOfTheOther) {
  EXPECT_THROW(ParseFlags(TlsRole::kServer, {"--tls_ca=a"}), CLI::ExtrasError);
  EXPECT_THROW(ParseFlags(TlsRole::kServer, {"--tls_server_name=n"}), CLI::ExtrasError);
  EXPECT_THROW(ParseFlags(TlsRole::kClient, {"--tls_client_ca=b"}), CLI::ExtrasError);
}

TEST(BeyondThisHostTest, IsWhatOtherHostsMayReach) {
  EXPECT_THAT(
      BeyondThisHost({"127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1", "unix:/socket", "unix-abstract:socket"}),
      IsEmpty());
  EXPECT_THAT(BeyondThisHost({"0.0.0.0:1", "127.0.0.1:1", "[::]:1", ":1", "10.0.0.7:1", "worker:1"}),
              ElementsAre("0.0.0.0:1", "[::]:1", ":1", "10.0.0.7:1", "worker:1"));
}

TEST(WarnWithoutTlsTest, NamesTheAddressAndTheFlagOnce) {
  const auto logged = [](const std::optional<ServerTls>& tls, const std::vector<std::string>& addresses) {
    ::testing::internal::CaptureStderr();
    StartLogging();
    WarnWithoutTls(tls, addresses);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(logged(std::nullopt, {"127.0.0.1:1"}), "");
  EXPECT_EQ(logged(ServerTls(), {"0.0.0.0:1"}), "");
  const std::string line = logged(std::nullopt, {"0.0.0.0:1", "127.0.0.1:1", "[::]:2"});
  EXPECT_THAT(line, HasSubstr("level=warning"));
  EXPECT_THAT(line, HasSubstr("0.0.0.0:1,[::]:2"));
  EXPECT_THAT(line, HasSubstr("flag=--tls_certificate"));
}

}  // namespace
}  // namespace sluice
