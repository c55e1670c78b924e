#include "lib/tls/access_rules.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/has_code.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using testing::HasCode;
using ::testing::HasSubstr;

constexpr absl::string_view kMethods[] = {"BlockService/Read", "SruService/ReadSru", "SruService/ReadManifest",
                                          "ProbeService/Probe"};

AccessRules Make(std::vector<AccessRule> rules) {
  auto made = AccessRules::Create(std::move(rules), kMethods);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

const PeerIdentity kReader{.uris = {"spiffe://example/reader"}};

TEST(AccessRules, WithoutRulesEachCallIsAllowed) {
  EXPECT_TRUE(AccessRules().Check({}, "BlockService/Read", "data").ok());
  EXPECT_TRUE(AccessRules().empty());
}

TEST(AccessRules, WithRulesOtherClientsAreDenied) {
  const AccessRules rules = Make({{.names = {"spiffe://example/reader"}}});
  EXPECT_TRUE(rules.Check(kReader, "BlockService/Read", "data").ok());
  EXPECT_TRUE(rules.Check(kReader, "ProbeService/Probe", std::nullopt).ok());
  const absl::Status denied = rules.Check({.uris = {"spiffe://example/reader/2"}}, "BlockService/Read", "data");
  EXPECT_THAT(denied, HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_EQ(
      denied.message(),
      "spiffe://example/reader/2 may not call BlockService/Read of file \"data\": no rule of access has this client");
  EXPECT_EQ(rules.Check({}, "ProbeService/Probe", std::nullopt).message(),
            "a client without a name may not call ProbeService/Probe: no rule of access has this client");
}

TEST(AccessRules, DnsNamesHaveNoCaseAndUrisHave) {
  const AccessRules rules = Make({{.names = {"Reader.example", "spiffe://Example/a"}}});
  EXPECT_TRUE(rules.Check({.dns_names = {"other", "reader.EXAMPLE"}}, "BlockService/Read", "data").ok());
  EXPECT_TRUE(rules.Check({.uris = {"spiffe://Example/a"}}, "BlockService/Read", "data").ok());
  EXPECT_FALSE(rules.Check({.uris = {"spiffe://example/a"}}, "BlockService/Read", "data").ok());
  EXPECT_FALSE(rules.Check({.dns_names = {"a.reader.example", "*.example"}}, "BlockService/Read", "data").ok());
}

// An authority may check one kind of name, and sign the other as it is requested.
TEST(AccessRules, ADnsNameIsNoUriAndAUriNoDnsName) {
  const AccessRules rules = Make({{.names = {"reader.example", "spiffe://example/reader"}}});
  const PeerIdentity dns_as_uri{.dns_names = {"spiffe://example/reader"}};
  const PeerIdentity uri_as_dns{.uris = {"reader.example"}};
  for (const PeerIdentity& peer : {dns_as_uri, uri_as_dns}) {
    EXPECT_THAT(std::string(rules.Check(peer, "ProbeService/Probe", std::nullopt).message()),
                HasSubstr("no rule of access has this client"));
  }
}

TEST(AccessRules, UsersOfUnixSocketsAreClients) {
  const AccessRules rules = Make({{.uids = {0, 1001}}, {.uids = {1001, 7}}});
  EXPECT_TRUE(rules.Check({.uid = 1001}, "BlockService/Read", "data").ok());
  EXPECT_TRUE(rules.Check({.uid = 0}, "BlockService/Read", "data").ok());
  EXPECT_THAT(std::string(rules.Check({.uid = 1002}, "BlockService/Read", "data").message()), HasSubstr("uid 1002"));
  EXPECT_FALSE(rules.Check({}, "BlockService/Read", "data").ok());
  EXPECT_THAT(rules.Uids(), ElementsAre(0, 7, 1001));
}

TEST(AccessRules, ARuleHasServicesAndMethods) {
  const AccessRules rules =
      Make({{.names = {"spiffe://example/reader"}, .methods = {"SruService", "BlockService/Read"}}});
  EXPECT_TRUE(rules.Check(kReader, "SruService/ReadSru", "data").ok());
  EXPECT_TRUE(rules.Check(kReader, "SruService/ReadManifest", "data").ok());
  EXPECT_TRUE(rules.Check(kReader, "BlockService/Read", "data").ok());
  EXPECT_EQ(rules.Check(kReader, "ProbeService/Probe", std::nullopt).message(),
            "spiffe://example/reader may not call ProbeService/Probe: access[0].methods does not have it");
}

TEST(AccessRules, ARuleHasPrefixesOfFiles) {
  const AccessRules rules = Make({{.names = {"other"}}, {.names = {"spiffe://example/reader"}, .files = {"a-", "b"}}});
  EXPECT_TRUE(rules.Check(kReader, "BlockService/Read", "a-1").ok());
  EXPECT_TRUE(rules.Check(kReader, "BlockService/Read", "b").ok());
  EXPECT_EQ(
      rules.Check(kReader, "BlockService/Read", "c\n").message(),
      "spiffe://example/reader may not call BlockService/Read of file \"c\\n\": access[1].files has no such prefix");
  EXPECT_FALSE(rules.Check(kReader, "BlockService/Read", "A-1").ok());
  EXPECT_FALSE(rules.Check(kReader, "ProbeService/Probe", std::nullopt).ok()) << "it reads no such file";
}

TEST(AccessRules, ACallNeedsOneRuleThatAllowsAllOfIt) {
  const AccessRules rules = Make({{.names = {"spiffe://example/reader"}, .methods = {"SruService"}, .files = {"a"}},
                                  {.names = {"spiffe://example/reader"}, .methods = {"BlockService"}, .files = {"b"}}});
  EXPECT_TRUE(rules.Check(kReader, "SruService/ReadSru", "a").ok());
  EXPECT_TRUE(rules.Check(kReader, "BlockService/Read", "b").ok());
  EXPECT_THAT(std::string(rules.Check(kReader, "SruService/ReadSru", "b").message()), HasSubstr("access[0].files"));
  EXPECT_THAT(std::string(rules.Check(kReader, "BlockService/Read", "a").message()), HasSubstr("access[1].files"));
}

TEST(AccessRules, NamesTheFieldOfAWrongRule) {
  const auto why = [](AccessRule rule) {
    const absl::Status status = AccessRules::Create({{.names = {"fine"}}, std::move(rule)}, kMethods).status();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
    return std::string(status.message());
  };
  EXPECT_THAT(why({}), HasSubstr("access[1] names no clients"));
  EXPECT_THAT(why({.names = {"a b"}}), HasSubstr("access[1].names: \"a b\""));
  EXPECT_THAT(why({.uids = {1}, .methods = {"BlockService/Write"}}),
              HasSubstr("access[1].methods: \"BlockService/Write\""));
  EXPECT_THAT(why({.uids = {1}, .methods = {"Block"}}), HasSubstr("access[1].methods: \"Block\""));
  EXPECT_THAT(why({.uids = {1}, .methods = {""}}), HasSubstr("access[1].methods"));
  EXPECT_THAT(why({.uids = {1}, .files = {""}}), HasSubstr("access[1].files"));
}

}  // namespace
}  // namespace sluice
