#include "lib/cli/access_config.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include "lib/cli/logging.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const ServerTls kMutual{.certificate_file = "c", .key_file = "k", .client_ca_file = "ca"};

absl::StatusOr<AccessRules> Parse(const std::string& rules, const std::optional<ServerTls>& tls,
                                  const std::vector<std::string>& listen) {
  v1::WorkerConfig config;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage("{\"access\": [" + rules + "]}", &config).ok()) << rules;
  return ParseAccess(config.access(), tls, listen);
}

std::string Refused(const std::string& rules, const std::optional<ServerTls>& tls,
                    const std::vector<std::string>& listen) {
  const absl::Status status = Parse(rules, tls, listen).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(ParseAccessTest, WithoutRulesEachCallIsAllowed) {
  const auto access = Parse("", std::nullopt, {"0.0.0.0:7000"});
  ASSERT_TRUE(access.ok()) << access.status();
  EXPECT_TRUE(access->empty());
}

TEST(ParseAccessTest, TakesAllFields) {
  const auto access =
      Parse(R"({"names": ["a"], "uids": [7], "methods": ["SruService"], "files": ["b"]}, {"names": ["c"]})", kMutual,
            {"0.0.0.0:7000", "unix:/run/s"});
  ASSERT_TRUE(access.ok()) << access.status();
  EXPECT_THAT(access->rules(),
              ElementsAre(AccessRule{.names = {"a"}, .uids = {7}, .methods = {"SruService"}, .files = {"b"}},
                          AccessRule{.names = {"c"}}));
}

TEST(ParseAccessTest, RefusesRulesWithoutEffect) {
  ServerTls one_sided = kMutual;
  one_sided.client_ca_file.clear();
  for (const std::optional<ServerTls>& tls : {std::optional<ServerTls>(), std::optional(one_sided)}) {
    EXPECT_THAT(Refused(R"({"uids": [1]}, {"names": ["a"]})", tls, {"unix:/run/s"}),
                HasSubstr("access[1].names has no effect without tls.client_ca"));
  }
  EXPECT_THAT(Refused(R"({"uids": [1]})", kMutual, {"0.0.0.0:7000"}),
              HasSubstr("access[0].uids has no effect: listen has no Unix socket"));
}

TEST(ParseAccessTest, RefusesWrongRules) {
  EXPECT_THAT(Refused("{}", kMutual, {"0.0.0.0:7000"}), HasSubstr("access[0] names no clients"));
  EXPECT_THAT(Refused(R"({"names": ["a"], "methods": ["Read"]})", kMutual, {"0.0.0.0:7000"}),
              HasSubstr("access[0].methods: \"Read\" is none of BlockService/Read, SruService/ReadSru"));
}

TEST(RefusedCallLogTest, LogsAClientAndMethodOnce) {
  const auto log = RefusedCallLog();
  ::testing::internal::CaptureStderr();
  StartLogging();
  EXPECT_TRUE(SetLogLevel("warning").ok());
  for (int i = 0; i < 3; ++i) log({.client = "a", .peer = "ipv4:10.0.0.1:1", .method = "B/R", .reason = "why"});
  log({.client = "a", .peer = "ipv4:10.0.0.1:1", .method = "S/R", .reason = "why"});
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines,
              HasSubstr("msg=\"a call is refused\" client=a peer=ipv4:10.0.0.1:1 method=B/R reason=why unlogged=0"));
  EXPECT_THAT(lines, HasSubstr("method=S/R"));
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2);
}

TEST(RefusedCertificateLogTest, LogsAReasonOnce) {
  const auto log = RefusedCertificateLog();
  ::testing::internal::CaptureStderr();
  StartLogging();
  EXPECT_TRUE(SetLogLevel("warning").ok());
  for (int i = 0; i < 3; ++i) log(absl::UnauthenticatedError("the certificate of a client (a) is revoked"));
  log(absl::UnauthenticatedError("the certificate of a client (b) is revoked"));
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines, HasSubstr("msg=\"a client's TLS handshake has failed\" "
                               "reason=\"the certificate of a client (a) is revoked\" unlogged=0"));
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2);
}

}  // namespace
}  // namespace sluice
