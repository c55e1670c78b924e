// The server's side of a TlsFilter.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <openssl/ssl.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/tls/tls_context.h"
#include "lib/tls/tls_filter.h"
#include "tests/unit/tls/test_certificates.h"
#include "tests/unit/tls/tls_end.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ReadFile;
using testing::ReplaceFile;
using testing::TestCertificates;
using testing::TlsClientEnd;

constexpr char kClientPeer[] = "10.0.0.7:41234";

// An accepting filter and a client that exchange their bytes.
class TlsFilterAcceptTest : public ::testing::Test {
 protected:
  ListenerTls Options(const std::vector<std::string>& names = {}) {
    const auto files = certificates_.Make("listener");
    return {.files = {.certificate_file = files.certificate_file,
                      .key_file = files.key_file,
                      .client_ca_file = certificates_.ca_file()},
            .client_names = names};
  }
  TlsClientEnd::Options Client() { return {.ca_file = certificates_.ca_file(), .files = certificates_.Make("client")}; }
  TlsClientEnd::Options ClientWith(const TestCertificates::Options& certificate) {
    return {.ca_file = certificates_.ca_file(), .files = certificates_.Make("client", certificate)};
  }

  void Begin(const ListenerTls& options, const TlsClientEnd::Options& client) {
    const auto context = TlsContext::CreateForListener(options);
    ASSERT_TRUE(context.ok()) << context.status();
    auto filter = TlsFilter::Accept(*(*context)->Current(), (*context)->client_names(), kClientPeer);
    ASSERT_TRUE(filter.ok()) << filter.status();
    filter_ = *std::move(filter);
    status_ = absl::OkStatus();
    client_.emplace(client);
    client_ok_ = true;
    to_filter_.clear();
    EXPECT_EQ(filter_->TakeCiphertext(), "") << "the client speaks first";
    EXPECT_TRUE(client_->Receive("", to_filter_));
  }
  // Exchanges bytes until neither side has output, in pieces of at most piece_bytes_.
  void Exchange() {
    while (!to_filter_.empty() || !to_client_.empty()) {
      const std::string piece = to_filter_.substr(0, piece_bytes_);
      to_filter_.erase(0, piece.size());
      if (!piece.empty()) status_ = filter_->Receive(piece, received_);
      to_client_ += filter_->TakeCiphertext();
      const std::string answer = to_client_.substr(0, piece_bytes_);
      to_client_.erase(0, answer.size());
      if (!answer.empty() && !client_->Receive(answer, to_filter_)) client_ok_ = false;
    }
  }
  void Connect(const ListenerTls& options, const TlsClientEnd::Options& client) {
    Begin(options, client);
    Exchange();
  }
  // Expects a refusal that the client receives.
  void ExpectRefused(const std::string& why) {
    EXPECT_FALSE(filter_->established());
    EXPECT_EQ(status_.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status_.message()), HasSubstr(why));
    EXPECT_FALSE(client_ok_);
    EXPECT_EQ(received_, "");
  }

  TestCertificates certificates_;
  std::unique_ptr<TlsFilter> filter_;
  std::optional<TlsClientEnd> client_;
  size_t piece_bytes_ = SIZE_MAX;
  std::string to_filter_;
  std::string to_client_;
  std::string received_;
  bool client_ok_ = true;
  absl::Status status_;
};

TEST_F(TlsFilterAcceptTest, CarriesBytesBothWays) {
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    for (const size_t piece : {size_t{1}, SIZE_MAX}) {
      piece_bytes_ = piece;
      received_.clear();
      TlsClientEnd::Options client = Client();
      client.max_version = version;
      Connect(Options(), client);
      ASSERT_TRUE(filter_->established()) << status_;
      EXPECT_EQ(SSL_version(client_->ssl()), version);
      to_filter_ = client_->Send("question");
      ASSERT_TRUE(filter_->Send("answer").ok());
      Exchange();
      EXPECT_EQ(received_, "question");
      EXPECT_EQ(client_->received(), "answer");
      filter_->SendEnd();
      to_filter_ += client_->SendEnd();
      Exchange();
      EXPECT_TRUE(client_->ended());
      EXPECT_TRUE(filter_->ended());
      EXPECT_TRUE(filter_->ReceiveEnd().ok());
    }
  }
}

TEST_F(TlsFilterAcceptTest, AClientWithoutACertificateIsRefused) {
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    Connect(Options(), {.ca_file = certificates_.ca_file(), .files = std::nullopt, .max_version = version});
    ExpectRefused("10.0.0.7:41234 showed no certificate");
  }
  EXPECT_THAT(client_->error(), HasSubstr("certificate required"));
}

TEST_F(TlsFilterAcceptTest, ACertificateOfAnotherAuthorityIsRefused) {
  TestCertificates others;
  Connect(Options(), {.ca_file = certificates_.ca_file(), .files = others.Make("client")});
  ExpectRefused("the certificate of 10.0.0.7:41234 is signed by an unknown authority, \"Test Root\"");
}

TEST_F(TlsFilterAcceptTest, ACertificateIsRefusedOutsideItsTime) {
  Connect(Options(), ClientWith({.valid_from = -absl::Hours(2), .valid_until = -absl::Hours(1)}));
  ExpectRefused("the certificate of 10.0.0.7:41234 expired at 20");
  Connect(Options(), ClientWith({.valid_from = absl::Hours(1), .valid_until = absl::Hours(2)}));
  ExpectRefused("the certificate of 10.0.0.7:41234 is not valid before 20");
}

TEST_F(TlsFilterAcceptTest, ADnsNameIsNoUriAndAUriNoDnsName) {
  const std::vector<std::string> names = {"front.test", "spiffe://test/front"};
  const TestCertificates::Options dns_as_uri{.dns_names = {"spiffe://test/front"}, .ip_addresses = {}};
  const TestCertificates::Options uri_as_dns{.dns_names = {}, .ip_addresses = {}, .uris = {"front.test"}};
  for (const TestCertificates::Options& certificate : {dns_as_uri, uri_as_dns}) {
    Connect(Options(names), ClientWith(certificate));
    ExpectRefused(", and has none of client_names as its DNS name or URI");
    Connect(Options(), ClientWith(certificate));
    EXPECT_TRUE(filter_->established()) << status_;
    EXPECT_FALSE(filter_->PeerHasOneOf(names));
    EXPECT_EQ(filter_->PeerName(), "");
  }
  for (const std::string& name : names) {
    const bool is_uri = name != "front.test";
    Connect(Options({name}), ClientWith(is_uri ? TestCertificates::Options{.uris = {name}}
                                               : TestCertificates::Options{.dns_names = {name}}));
    EXPECT_TRUE(filter_->established()) << status_;
    EXPECT_EQ(filter_->PeerName(), name);
  }
}

TEST_F(TlsFilterAcceptTest, ACommonNameIsNoName) {
  const TestCertificates::Files files =
      certificates_.Make("front.test", {.dns_names = {}, .ip_addresses = {}, .uris = {}});
  Connect(Options({"front.test"}), {.ca_file = certificates_.ca_file(), .files = files});
  ExpectRefused("10.0.0.7:41234");
}

TEST_F(TlsFilterAcceptTest, ACertificateForServersAloneIsRefused) {
  Connect(Options(), ClientWith({.usage = "serverAuth"}));
  ExpectRefused("the certificate of 10.0.0.7:41234: unsuitable certificate purpose");
}

TEST_F(TlsFilterAcceptTest, OneOfTheNamesWillDo) {
  const std::vector<std::string> names = {"a.example", "spiffe://mesh/ns/search/sa/front"};
  const TestCertificates::Options good[] = {
      {.dns_names = {"z.example", "A.Example"}, .ip_addresses = {}},
      {.dns_names = {}, .ip_addresses = {}, .uris = {"spiffe://mesh/ns/search/sa/front"}},
  };
  for (const auto& certificate : good) {
    Connect(Options(names), ClientWith(certificate));
    EXPECT_TRUE(filter_->established()) << status_;
  }
  const std::pair<TestCertificates::Options, const char*> bad[] = {
      {{.dns_names = {"b.example", "a.example.org"}, .ip_addresses = {}}, "is for b.example, a.example.org, and"},
      {{.dns_names = {"*.example"}, .ip_addresses = {}}, "is for *.example, and"},
      {{.dns_names = {}, .ip_addresses = {"10.0.0.1"}, .uris = {"spiffe://mesh/ns/search/sa/FRONT"}},
       "is for 10.0.0.1, spiffe://mesh/ns/search/sa/FRONT, and"},
      {{.dns_names = {"spiffe://mesh/ns/search/sa/front2"}, .ip_addresses = {}, .uris = {"a.example2"}}, "is for"},
      {{.dns_names = {}, .ip_addresses = {}}, "is for CN=client, and"},
  };
  for (const auto& [certificate, why] : bad) {
    Connect(Options(names), ClientWith(certificate));
    ExpectRefused(why);
    EXPECT_THAT(std::string(status_.message()), HasSubstr("has none of client_names as its DNS name or URI"));
  }
}

// Checks a chain, and a certificate that is itself among the authorities.
TEST_F(TlsFilterAcceptTest, NamesAreLookedAtHoweverACertificateIsTrusted) {
  TestCertificates chained(TestCertificates::Key::kEcdsa, /*intermediate=*/true);
  for (const auto& [names, good] : {std::pair(std::vector<std::string>{"localhost"}, true), {{"other"}, false}}) {
    ListenerTls options = Options(names);
    options.files.client_ca_file = chained.ca_file();
    Connect(options, {.ca_file = certificates_.ca_file(), .files = chained.Make("client")});
    EXPECT_EQ(filter_->established(), good) << status_;
    const auto itself = certificates_.Make("itself");
    options.files.client_ca_file = itself.certificate_file;
    Connect(options, {.ca_file = certificates_.ca_file(), .files = itself});
    EXPECT_EQ(filter_->established(), good) << status_;
  }
}

TEST_F(TlsFilterAcceptTest, AClientMayAskForATunnelByHttp1) {
  TlsClientEnd::Options client = Client();
  client.alpn = {"imap"};
  Connect(Options(), client);
  ExpectRefused("10.0.0.7:41234 offers neither HTTP/2 nor HTTP/1.1 (ALPN \"h2\", \"http/1.1\")");
  EXPECT_THAT(client_->error(), HasSubstr("no application protocol"));
  for (const auto& [offered, selected] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"http/1.1"}, "http/1.1"}, {{}, ""}, {{"http/1.1", "h2"}, "h2"}}) {
    client.alpn = offered;
    Connect(Options(), client);
    EXPECT_TRUE(filter_->established()) << status_;
    const unsigned char* protocol = nullptr;
    unsigned int bytes = 0;
    SSL_get0_alpn_selected(client_->ssl(), &protocol, &bytes);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(protocol), bytes), selected);
  }
}

TEST_F(TlsFilterAcceptTest, AClientThatDoesNotSpeakTlsIsToldApart) {
  Begin(Options(), Client());
  EXPECT_EQ(filter_->Receive("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", received_),
            absl::UnavailableError("10.0.0.7:41234: the other side does not speak TLS"));
  Begin(Options(), Client());
  EXPECT_THAT(std::string(filter_->ReceiveEnd().message()), HasSubstr("in the TLS handshake; it may not speak TLS"));
}

TEST_F(TlsFilterAcceptTest, SaysThatAClientRefusesItsCertificate) {
  TestCertificates others;
  Connect(Options(), {.ca_file = others.ca_file(), .files = certificates_.Make("client")});
  EXPECT_EQ(status_, absl::UnavailableError(
                         "10.0.0.7:41234 refuses the certificate of this listener: TLS alert \"unknown CA\""));
}

// A ticket would admit a client that the current files refuse.
TEST_F(TlsFilterAcceptTest, NoClientComesBackByATicket) {
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClientEnd::Options client = Client();
    client.max_version = version;
    Connect(Options(), client);
    to_client_ = filter_->Send("x").ok() ? filter_->TakeCiphertext() : "";
    Exchange();
    ASSERT_EQ(client_->received(), "x");
    SSL_SESSION* const session = SSL_get1_session(client_->ssl());
    EXPECT_EQ(SSL_SESSION_has_ticket(session), 0);
    SSL_SESSION_free(session);
  }
}

}  // namespace
}  // namespace sluice
