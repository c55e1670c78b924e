#include <chrono>

#include "sluice/fan_out.h"

#include "absl/strings/match.h"
#include "tests/eventually.h"
#include "tests/unit/fan_out/fan_out_fixture.h"
#include "tests/unit/tls/test_authority.h"
#include "tests/unit/tls/test_certificates.h"

namespace sluice {
namespace {

using testing::HasCode;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::NameOf;
using testing::Says;
using testing::TestCertificates;
using testing::Way;

// TLS between a FanOut and its workers.
class FanOutTlsTest : public testing::FanOutTest {
 protected:
  // If `client_ca_file` is not empty, the server requires a client certificate.
  void StartTlsServer(const std::string& value, const std::string& client_ca_file = "",
                      const TestCertificates::Options& names = {}) {
    servers_.push_back(std::make_unique<testing::ScriptedServer>(
        Says({value}), testing::TlsServerEnd::Options{.files = certificates_.Make("server", names),
                                                      .client_ca_file = client_ca_file}));
  }

  TestCertificates certificates_;
};

INSTANTIATE_TEST_SUITE_P(By, FanOutTlsTest,
                         ::testing::Values(SchedulePolicy::kRolling, SchedulePolicy::kGrants,
                                           Way(SchedulePolicy::kGrants, false, 3)),
                         NameOf);

TEST_P(FanOutTlsTest, AsksWorkersWhoseAuthorityIsKnown) {
  StartTlsServer("0");
  StartTlsServer(std::string(300'000, 'x'));
  MakeFanOut({}, {.tls = certificates_.ClientOptions()});
  EXPECT_THAT(fan_out_->Connect(), IsEmpty());
  const auto [result, responses] = fan_out_->Collect(kUnary, Ask(2));
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(responses[0].at(0).value(), "0");
  EXPECT_EQ(responses[1].at(0).value().size(), 300'000u);
  EXPECT_TRUE(AwaitIdle());
}

TEST_P(FanOutTlsTest, AWorkerOfAnotherAuthorityFailsWithTheReasonBeforeTheDeadline) {
  const TestCertificates others;
  StartTlsServer("0");
  MakeFanOut({}, {.tls = others.ClientOptions()});
  const auto begin = std::chrono::steady_clock::now();
  const auto result = fan_out_->Call(kUnary, Ask(1), Ignore(), {.timeout = absl::Minutes(5)});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_THAT(result.status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(result.status.message()), HasSubstr(server(0).address()));
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("certificate"));
  EXPECT_EQ(server(0).counts().requests, 0);
}

TEST_P(FanOutTlsTest, AWorkerOfAnotherNameFails) {
  StartTlsServer("0");
  TlsOptions tls = certificates_.ClientOptions();
  tls.server_name = "workers.example.com";
  MakeFanOut({}, {.tls = tls});
  const auto result = fan_out_->Call(kUnary, Ask(1), Ignore(), {.timeout = absl::Minutes(5)});
  EXPECT_THAT(result.status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("workers.example.com"));
}

TEST_P(FanOutTlsTest, TheNameThatACertificateHasToBearIsTheAuthorityOfRequests) {
  StartTlsServer("0");
  MakeFanOut({}, {.tls = certificates_.ClientOptions()});
  EXPECT_TRUE(fan_out_->Call(kUnary, Ask(1), Ignore()).status.ok());
  EXPECT_EQ(server(0).seen().at(0).authority, server(0).address());
  TlsOptions tls = certificates_.ClientOptions();
  tls.server_name = "localhost";
  MakeFanOut({}, {.tls = tls});
  EXPECT_TRUE(fan_out_->Call(kUnary, Ask(1), Ignore()).status.ok());
  EXPECT_EQ(server(0).seen().at(1).authority, "localhost");
}

TEST_P(FanOutTlsTest, AUriMayNameTheWorkersAndIsNoAuthority) {
  StartTlsServer("0", "", {.dns_names = {}, .ip_addresses = {}, .uris = {"spiffe://example/worker"}});
  TlsOptions tls = certificates_.ClientOptions();
  tls.server_name = "spiffe://example/worker";
  MakeFanOut({}, {.tls = tls});
  const auto result = fan_out_->Call(kUnary, Ask(1), Ignore());
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(server(0).seen().at(0).authority, server(0).address());
}

TEST_P(FanOutTlsTest, ShowsItsCertificateToWorkersThatAskForOne) {
  StartTlsServer("0", certificates_.ca_file());
  MakeFanOut({}, {.tls = certificates_.ClientOptions(certificates_.Make("client"))});
  EXPECT_TRUE(fan_out_->Call(kUnary, Ask(1), Ignore()).status.ok());
}

TEST_P(FanOutTlsTest, AWorkerThatAsksForACertificateTakesNoneWithout) {
  StartTlsServer("0", certificates_.ca_file());
  MakeFanOut({}, {.tls = certificates_.ClientOptions()});
  const auto result = fan_out_->Call(kUnary, Ask(1), Ignore(), {.timeout = absl::Minutes(5)});
  EXPECT_THAT(result.status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(result.status.message()), HasSubstr(server(0).address()));
  EXPECT_EQ(server(0).counts().requests, 0);
}

TEST_P(FanOutTlsTest, AWorkerWithoutTlsFailsBeforeTheDeadline) {
  StartServers(1);
  MakeFanOut({}, {.tls = certificates_.ClientOptions()});
  const auto result = fan_out_->Call(kUnary, Ask(1), Ignore(), {.timeout = absl::Minutes(5)});
  EXPECT_THAT(result.status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(result.status.message()), HasSubstr(server(0).address()));
}

// The client continues with the previous files, which may be the reason for the failure.
TEST_P(FanOutTlsTest, AFailureTellsOfFilesThatChangedAndAreNotTaken) {
  const TestCertificates others;
  StartTlsServer("0");
  MakeFanOut({}, {.tls = others.ClientOptions()});
  testing::ReplaceFile(others.ca_file(), "no PEM");
  std::string message;
  EXPECT_TRUE(testing::Eventually([&] {
    message = std::string(fan_out_->Call(kUnary, Ask(1), Ignore()).status.message());
    return absl::StrContains(message, others.ca_file());
  })) << message;
  EXPECT_THAT(message, HasSubstr("unknown authority"));
  EXPECT_THAT(message, HasSubstr("has no certificate in PEM"));
}

TEST_P(FanOutTlsTest, AWorkerThatANewListRevokesLosesItsConnection) {
  testing::TestAuthority authority(certificates_.Path(""), "authority");
  const testing::TestIdentity stolen = authority.Issue("stolen");
  const testing::TestIdentity good = authority.Issue("good");
  for (const testing::TestIdentity& identity : {stolen, good}) {
    servers_.push_back(std::make_unique<testing::ScriptedServer>(
        Says({"0"}),
        testing::TlsServerEnd::Options{.files = {identity.certificate_file, identity.key_file}, .client_ca_file = {}}));
  }
  MakeFanOut({}, {.tls = TlsOptions{.ca_file = authority.file(), .crl_file = authority.Revoke("crl", {})}});
  EXPECT_TRUE(fan_out_->Call(kUnary, Ask(2), Ignore()).status.ok());
  server(0).SetPlay(testing::Holds("0"));
  const auto held = CallAsync(Ask(1));
  EXPECT_TRUE(server(0).AwaitHolding(1));

  authority.Revoke("crl", {stolen.certificate_file});
  EXPECT_TRUE(held->Await());
  EXPECT_THAT(std::string(held->result().status.message()), HasSubstr("is revoked"));
  const FanOutResult result = fan_out_->Call(kUnary, Ask(1), Ignore(), {.timeout = absl::Minutes(5)});
  EXPECT_THAT(result.status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("is revoked"));
  EXPECT_EQ(server(0).counts().requests, 2);
  EXPECT_EQ(server(1).connections(), 1u);
}

TEST_P(FanOutTlsTest, AFileThatIsMissingIsNamedWhenTheFanOutIsCreated) {
  const auto link = *Link::Create(LinkProfile());
  const auto fan_out =
      FanOut::Create(link, {.workers = {"127.0.0.1:1"}, .tls = TlsOptions{.ca_file = "/nowhere/ca.pem"}});
  EXPECT_FALSE(fan_out.ok());
  EXPECT_THAT(std::string(fan_out.status().message()), HasSubstr("/nowhere/ca.pem"));
}

}  // namespace
}  // namespace sluice
