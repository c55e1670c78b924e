#include "lib/tls/tls_filter.h"

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <optional>
#include <random>
#include <string>

#include <openssl/ssl.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/tls/tls_context.h"
#include "tests/random_seed.h"
#include "tests/unit/tls/test_authority.h"
#include "tests/unit/tls/test_certificates.h"
#include "tests/unit/tls/tls_end.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using testing::TestAuthority;
using testing::TestCertificates;
using testing::TestIdentity;
using testing::TlsServerEnd;

constexpr char kPeer[] = "127.0.0.1:7001";

// A filter and a server that exchange their bytes.
class TlsFilterTest : public ::testing::Test {
 protected:
  void Connect(const TlsServerEnd::Options& server, const TlsOptions& client,
               const std::string& server_name = "localhost") {
    absl::StatusOr<std::shared_ptr<TlsContext>> context = TlsContext::Create(client);
    ASSERT_TRUE(context.ok()) << context.status();
    absl::StatusOr<std::unique_ptr<TlsFilter>> filter = TlsFilter::Create(*(*context)->Current(), server_name, kPeer);
    ASSERT_TRUE(filter.ok()) << filter.status();
    filter_ = *std::move(filter);
    server_.emplace(server);
    Exchange();
  }

  // Exchanges bytes until neither side has output, in pieces of at most piece_bytes_.
  void Exchange() {
    while (true) {
      absl::StrAppend(&to_server_, filter_->TakeCiphertext());
      if (to_server_.empty() && to_client_.empty()) return;
      std::string output;
      if (!server_->Receive(Piece(to_server_), output)) server_failed_ = true;
      server_bytes_ += output.size();
      to_client_ += output;
      const std::string piece = Piece(to_client_);
      if (!piece.empty()) status_ = filter_->Receive(piece, received_);
    }
  }

  std::string Piece(std::string& bytes) const {
    const std::string piece = bytes.substr(0, piece_bytes_);
    bytes.erase(0, piece.size());
    return piece;
  }

  std::string Message() const { return std::string(status_.message()); }

  TestCertificates certificates_;
  std::unique_ptr<TlsFilter> filter_;
  std::optional<TlsServerEnd> server_;
  size_t piece_bytes_ = SIZE_MAX;
  std::string to_server_;
  std::string to_client_;
  size_t server_bytes_ = 0;
  bool server_failed_ = false;
  std::string received_;
  absl::Status status_;
};

TEST_F(TlsFilterTest, CarriesBytesBothWaysWithTls13) {
  Connect({.files = certificates_.Make("server")}, certificates_.ClientOptions());
  ASSERT_TRUE(filter_->established()) << status_;
  EXPECT_EQ(server_->server_name(), "localhost");
  ASSERT_TRUE(filter_->Send("question").ok());
  Exchange();
  EXPECT_EQ(server_->received(), "question");
  to_client_ = server_->Send("answer");
  Exchange();
  EXPECT_EQ(received_, "answer");
}

TEST_F(TlsFilterTest, CarriesBytesBothWaysWithTls12) {
  Connect({.files = certificates_.Make("server"), .max_version = TLS1_2_VERSION}, certificates_.ClientOptions());
  ASSERT_TRUE(filter_->established()) << status_;
  ASSERT_TRUE(filter_->Send("question").ok());
  to_client_ = server_->Send("answer");
  Exchange();
  EXPECT_EQ(server_->received(), "question");
  EXPECT_EQ(received_, "answer");
}

TEST_F(TlsFilterTest, RefusesTls11) {
  Connect({.files = certificates_.Make("server"), .max_version = TLS1_1_VERSION}, certificates_.ClientOptions());
  EXPECT_FALSE(filter_->established());
  EXPECT_EQ(status_.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(), HasSubstr(kPeer));
}

TEST_F(TlsFilterTest, TakesBytesCutAnywhere) {
  piece_bytes_ = 1;
  Connect({.files = certificates_.Make("server")}, certificates_.ClientOptions());
  ASSERT_TRUE(filter_->established()) << status_;
  to_client_ = server_->Send("answer");
  Exchange();
  EXPECT_EQ(received_, "answer");
}

TEST_F(TlsFilterTest, CarriesAnyNumberOfBytesInPiecesOfAnySize) {
  const RandomSeed seed = TakeRandomSeed();
  SCOPED_TRACE(absl::StrCat("replay with SLUICE_SEED=", seed.value));
  std::mt19937_64 random(seed.value);
  Connect({.files = certificates_.Make("server")}, certificates_.ClientOptions());
  std::string sent;
  std::string asked;
  for (int i = 0; i < 30; ++i) {
    std::string bytes(1 + random() % (i % 3 == 0 ? 300'000 : 3000), '\0');
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<char>(random()); });
    piece_bytes_ = 1 + random() % 100'000;
    to_client_ += server_->Send(bytes);
    sent += bytes;
    ASSERT_TRUE(filter_->Send(bytes).ok());
    asked += bytes;
    Exchange();
  }
  EXPECT_TRUE(received_ == sent);
  EXPECT_TRUE(server_->received() == asked);
}

TEST_F(TlsFilterTest, ChecksAnIpAddressAndSendsNoNameForIt) {
  for (const char* address : {"127.0.0.1", "::1"}) {
    Connect({.files = certificates_.Make("server")}, certificates_.ClientOptions(), address);
    EXPECT_TRUE(filter_->established()) << status_;
    EXPECT_EQ(server_->server_name(), "");
  }
}

TEST_F(TlsFilterTest, TheDotAtTheEndOfANameIsNotPartOfIt) {
  Connect({.files = certificates_.Make("server")}, certificates_.ClientOptions(), "localhost.");
  EXPECT_TRUE(filter_->established()) << status_;
  EXPECT_EQ(server_->server_name(), "localhost");
}

TEST_F(TlsFilterTest, RefusesANameThatNoCertificateCanBear) {
  const auto context = TlsContext::Create(certificates_.ClientOptions());
  for (const std::string& name : {std::string(), std::string("."), std::string("a\0b", 3), std::string(300, 'a')}) {
    const auto filter = TlsFilter::Create(*(*context)->Current(), name, kPeer);
    EXPECT_EQ(filter.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(filter.status().message()), HasSubstr("server_name"));
  }
}

// RFC 9525, section 2: the common name of a subject is no name of a server.
TEST_F(TlsFilterTest, ACommonNameIsNoName) {
  TestAuthority authority(certificates_.Path(""), "authority");
  for (const char* names : {"", "email:admin@example.test", "URI:https://localhost/", "IP:127.0.0.1"}) {
    const TestIdentity worker = authority.Issue("localhost", names);
    Connect({.files = {worker.certificate_file, worker.key_file}}, {.ca_file = authority.file()});
    EXPECT_FALSE(filter_->established()) << names;
    EXPECT_THAT(Message(), EndsWith(", not localhost")) << names;
  }
  const TestIdentity worker = authority.Issue("other", "email:admin@example.test,DNS:localhost");
  Connect({.files = {worker.certificate_file, worker.key_file}}, {.ca_file = authority.file()});
  EXPECT_TRUE(filter_->established()) << status_;
}

TEST_F(TlsFilterTest, ComparesAUriWholeAndSendsNoNameForIt) {
  const auto files = certificates_.Make(
      "server", {.dns_names = {"spiffe://a.example/w"}, .uris = {"spiffe://a.example/worker", "spiffe://b.example/w"}});
  Connect({.files = files}, certificates_.ClientOptions(), "spiffe://b.example/w");
  EXPECT_TRUE(filter_->established()) << status_;
  EXPECT_EQ(server_->server_name(), "");
  for (const char* name : {"spiffe://a.example/w", "spiffe://a.example/workers", "spiffe://A.example/worker", "://"}) {
    Connect({.files = files}, certificates_.ClientOptions(), name);
    EXPECT_FALSE(filter_->established()) << name;
    EXPECT_THAT(Message(), EndsWith(absl::StrCat(", not ", name)));
  }
}

TEST_F(TlsFilterTest, RefusesAnotherAuthorityThatGivesTheUri) {
  TestCertificates others;
  const auto files = others.Make("server", {.uris = {"spiffe://a.example/worker"}});
  Connect({.files = files}, certificates_.ClientOptions(), "spiffe://a.example/worker");
  EXPECT_FALSE(filter_->established());
  EXPECT_THAT(Message(), HasSubstr("unknown authority"));
}

TEST_F(TlsFilterTest, SaysWhatNamesACertificateIsFor) {
  const auto files =
      certificates_.Make("server", {.dns_names = {"a.example", "b.example"}, .ip_addresses = {"10.0.0.1", "fd00::2"}});
  Connect({.files = files}, certificates_.ClientOptions(), "w-7.example");
  EXPECT_FALSE(filter_->established());
  EXPECT_EQ(status_, absl::UnavailableError("the certificate of 127.0.0.1:7001 is for a.example, b.example, 10.0.0.1, "
                                            "fd00:0:0:0:0:0:0:2, not w-7.example"));
  EXPECT_TRUE(server_failed_);  // the filter sent it an alert
}

TEST_F(TlsFilterTest, SaysWhatAddressesACertificateIsFor) {
  Connect({.files = certificates_.Make("server")}, certificates_.ClientOptions(), "127.0.0.2");
  EXPECT_EQ(Message(), "the certificate of 127.0.0.1:7001 is for localhost, 127.0.0.1, 0:0:0:0:0:0:0:1, not 127.0.0.2");
}

TEST_F(TlsFilterTest, NamesOfACertificateThatAreManyOrOddAreCutAndEscaped) {
  const auto files =
      certificates_.Make("server", {.dns_names = {"odd\x01name", "b", "c", "d", "e", "f", "g"}, .ip_addresses = {}});
  Connect({.files = files}, certificates_.ClientOptions());
  EXPECT_EQ(Message(), "the certificate of 127.0.0.1:7001 is for odd\\x01name, b, c, d, e, 2 more, not localhost");
}

TEST_F(TlsFilterTest, SaysWhenACertificateExpired) {
  const auto files = certificates_.Make("server", {.valid_from = -absl::Hours(2), .valid_until = -absl::Hours(1)});
  Connect({.files = files}, certificates_.ClientOptions());
  EXPECT_THAT(Message(), AllOf(HasSubstr("the certificate of 127.0.0.1:7001 expired at 20"), HasSubstr("UTC")));
}

TEST_F(TlsFilterTest, SaysWhenACertificateWillBeValid) {
  const auto files = certificates_.Make("server", {.valid_from = absl::Hours(1), .valid_until = absl::Hours(2)});
  Connect({.files = files}, certificates_.ClientOptions());
  EXPECT_THAT(Message(), HasSubstr("the certificate of 127.0.0.1:7001 is not valid before 20"));
}

TEST_F(TlsFilterTest, NamesAnAuthorityThatIsUnknown) {
  TestCertificates others;
  Connect({.files = others.Make("server")}, certificates_.ClientOptions());
  EXPECT_THAT(Message(), AllOf(HasSubstr("the certificate of 127.0.0.1:7001 is signed by an unknown authority"),
                               HasSubstr("\"Test Root\""), HasSubstr("not among the trusted ones")));
}

TEST_F(TlsFilterTest, DoesNotTrustTheAuthoritiesOfTheSystemWhereAFileIsGivenNorOthersWhereNot) {
  Connect({.files = certificates_.Make("server")}, TlsOptions());
  EXPECT_THAT(Message(), HasSubstr("unknown authority"));
}

TEST_F(TlsFilterTest, ShowsItsCertificateToAServerThatAsks) {
  Connect({.files = certificates_.Make("server"), .client_ca_file = certificates_.ca_file()},
          certificates_.ClientOptions(certificates_.Make("client")));
  EXPECT_TRUE(filter_->established()) << status_;
  to_client_ = server_->Send("welcome");
  Exchange();
  EXPECT_EQ(received_, "welcome");
}

TEST_F(TlsFilterTest, SaysThatAServerAsksForACertificate) {
  Connect({.files = certificates_.Make("server"), .client_ca_file = certificates_.ca_file()},
          certificates_.ClientOptions());
  EXPECT_EQ(status_, absl::UnavailableError("127.0.0.1:7001 asks for a certificate of this client, which has none"));
}

TEST_F(TlsFilterTest, SaysThatAServerRefusesItsCertificate) {
  TestCertificates others;
  Connect({.files = certificates_.Make("server"), .client_ca_file = certificates_.ca_file()},
          certificates_.ClientOptions(others.Make("client")));
  EXPECT_EQ(status_,
            absl::UnavailableError("127.0.0.1:7001 refuses the certificate of this client: TLS alert \"unknown CA\""));
}

// gRPC servers close the connection like this, without an alert.
TEST_F(TlsFilterTest, AnEndAfterTheServerAskedForACertificateTellsWhatThisSideShowed) {
  const TestCertificates::Options expired{.valid_from = -absl::Hours(2), .valid_until = -absl::Hours(1)};
  const struct {
    TlsOptions client;
    std::string shown;
  } cases[] = {
      {certificates_.ClientOptions(), "this client has none"},
      {certificates_.ClientOptions(certificates_.Make("client")),
       "this client showed \"client\" of the authority \"Test Root\", valid until 20"},
      {certificates_.ClientOptions(certificates_.Make("old", expired)),
       "this client showed \"old\" of the authority \"Test Root\", which expired at 20"},
  };
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    for (const auto& [client, shown] : cases) {
      const auto context = TlsContext::Create(client);
      ASSERT_TRUE(context.ok()) << context.status();
      const auto filter = TlsFilter::Create(*(*context)->Current(), "localhost", kPeer);
      TlsServerEnd server(
          {.files = certificates_.Make("server"), .client_ca_file = certificates_.ca_file(), .max_version = version});
      std::string hello;
      ASSERT_TRUE(server.Receive((*filter)->TakeCiphertext(), hello));
      ASSERT_TRUE((*filter)->Receive(hello, received_).ok());
      EXPECT_THAT(std::string((*filter)->ReceiveEnd("Connection reset by peer").message()),
                  AllOf(StartsWith("127.0.0.1:7001 ended the connection after it asked for a certificate of this "
                                   "client; " +
                                   shown),
                        EndsWith(": Connection reset by peer")));
    }
  }
}

TEST_F(TlsFilterTest, SaysThatAServerDoesNotOfferHttp2) {
  for (const bool required : {true, false}) {
    Connect({.files = certificates_.Make("server"), .alpn = {"http/1.1"}, .alpn_is_required = required},
            certificates_.ClientOptions());
    EXPECT_FALSE(filter_->established());
    EXPECT_EQ(status_, absl::UnavailableError("127.0.0.1:7001 does not offer HTTP/2 (ALPN \"h2\")"));
  }
}

TEST_F(TlsFilterTest, SaysThatAServerDoesNotSpeakTls) {
  const auto context = TlsContext::Create(certificates_.ClientOptions());
  for (const std::string& bytes :
       {std::string("HTTP/1.1 400 Bad Request\r\n"), std::string("\0\0\x12\4\0\0\0\0\0", 9)}) {
    const auto filter = TlsFilter::Create(*(*context)->Current(), "localhost", kPeer);
    ASSERT_TRUE(filter.ok());
    const absl::Status status = (*filter)->Receive(bytes, received_);
    EXPECT_EQ(status, absl::UnavailableError("127.0.0.1:7001: the other side does not speak TLS"));
    EXPECT_EQ((*filter)->Receive(bytes, received_), status);
    EXPECT_EQ((*filter)->ReceiveEnd(), status);
  }
}

TEST_F(TlsFilterTest, TellsAnEndInGoodOrderFromOneThatSomebodyMayHaveCut) {
  Connect({.files = certificates_.Make("server")}, certificates_.ClientOptions());
  EXPECT_THAT(std::string(filter_->ReceiveEnd().message()), HasSubstr("without TLS close_notify"));
  to_client_ = server_->Send("last");
  to_client_ += server_->SendEnd();
  Exchange();
  EXPECT_EQ(received_, "last");
  EXPECT_TRUE(filter_->ended());
  EXPECT_TRUE(filter_->ReceiveEnd().ok());
}

TEST_F(TlsFilterTest, AnEndInTheHandshakeSaysSo) {
  const auto context = TlsContext::Create(certificates_.ClientOptions());
  const auto filter = TlsFilter::Create(*(*context)->Current(), "localhost", kPeer);
  EXPECT_THAT(std::string((*filter)->ReceiveEnd().message()),
              AllOf(HasSubstr("handshake"), HasSubstr("not speak TLS")));
}

TEST_F(TlsFilterTest, SaysItsOwnEnd) {
  Connect({.files = certificates_.Make("server")}, certificates_.ClientOptions());
  filter_->SendEnd();
  Exchange();
  EXPECT_TRUE(server_->ended());
}

TEST_F(TlsFilterTest, BytesThatWereChangedOnTheWayEndTheConnectionForGood) {
  Connect({.files = certificates_.Make("server")}, certificates_.ClientOptions());
  std::string bytes = server_->Send("answer");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  const absl::Status status = filter_->Receive(bytes, received_);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(kPeer));
  EXPECT_EQ(filter_->Receive(server_->Send("more"), received_), status);
  EXPECT_EQ(filter_->Send("more"), status);
  EXPECT_EQ(received_, "");
}

// The handshake bytes of a server meet the bytes of the other workers in the port's buffer.
TEST_F(TlsFilterTest, AHandshakeFitsAFewPackets) {
  for (const auto key : {TestCertificates::Key::kEcdsa, TestCertificates::Key::kRsa2048}) {
    TestCertificates certificates(key, /*intermediate=*/true);
    const auto server = certificates.Make("server");
    const auto client = certificates.Make("client");
    for (const bool mutual : {false, true}) {
      server_bytes_ = 0;
      Connect({.files = server, .client_ca_file = mutual ? certificates.ca_file() : ""},
              mutual ? certificates.ClientOptions(client) : certificates.ClientOptions());
      ASSERT_TRUE(filter_->established()) << status_;
      std::cout << (key == TestCertificates::Key::kEcdsa ? "ECDSA P-256" : "RSA 2048")
                << (mutual ? ", client certificate" : "") << ": " << server_bytes_ << " bytes of the server\n";
      EXPECT_GT(server_bytes_, 1000U);
      EXPECT_LT(server_bytes_, 8000U);
    }
  }
}

}  // namespace
}  // namespace sluice
