// Revocation lists of both sides: TlsContext for workers and for listeners, and CheckClientCertificate.
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/tls/certificate_check.h"
#include "lib/tls/pem_file.h"
#include "lib/tls/server_tls.h"
#include "lib/tls/tls_context.h"
#include "lib/tls/tls_filter.h"
#include "tests/has_code.h"
#include "tests/unit/storage/stripe/striped_folder.h"
#include "tests/unit/tls/test_authority.h"
#include "tests/unit/tls/tls_end.h"

namespace sluice {
namespace {

using testing::HasCode;
using ::testing::HasSubstr;
using testing::TestAuthority;
using testing::TestIdentity;
using testing::TlsClientEnd;
using testing::TlsServerEnd;

class CrlTest : public ::testing::Test {
 protected:
  // Returns the error of a client of a worker with this certificate.
  absl::Status ConnectTo(const TestIdentity& worker, const std::string& crl_file) {
    const auto context = TlsContext::Create({.ca_file = authority_.file(), .crl_file = crl_file});
    if (!context.ok()) return context.status();
    auto filter = TlsFilter::Create(*(*context)->Current(), "localhost", "w-1");
    if (!filter.ok()) return filter.status();
    TlsServerEnd server({.files = {worker.certificate_file, worker.key_file}});
    return Exchange(**filter, server);
  }
  // Returns the error of a listener whose client has this certificate.
  absl::Status Accept(TlsContext& context, const TestIdentity& client) {
    auto filter = TlsFilter::Accept(*context.Current(), {}, "10.0.0.7:1");
    if (!filter.ok()) return filter.status();
    filter_ = *std::move(filter);
    TlsClientEnd end({.ca_file = authority_.file(),
                      .files = testing::TestCertificates::Files{client.certificate_file, client.key_file}});
    return Exchange(*filter_, end);
  }
  ListenerTls Listener(const std::string& crl_file) {
    return {.files = {.certificate_file = own_.certificate_file,
                      .key_file = own_.key_file,
                      .client_ca_file = authority_.file(),
                      .crl_file = crl_file}};
  }

  template <class End>
  static absl::Status Exchange(TlsFilter& filter, End& end) {
    absl::Status status;
    std::string to_filter;
    std::string received;
    end.Receive("", to_filter);
    for (int i = 0; i < 10 && status.ok(); ++i) {
      end.Receive(filter.TakeCiphertext(), to_filter);
      if (!to_filter.empty()) status = filter.Receive(to_filter, received);
      to_filter.clear();
    }
    EXPECT_EQ(filter.established(), status.ok());
    return status;
  }

  testing::TemporaryFolder folder_;
  TestAuthority authority_{folder_.path(), "authority"};
  TestAuthority stranger_{folder_.path(), "stranger"};
  const TestIdentity own_ = authority_.Issue("own");
  const TestIdentity good_ = authority_.Issue("good");
  const TestIdentity stolen_ = authority_.Issue("stolen");
  std::unique_ptr<TlsFilter> filter_;  // of the last Accept
};

TEST_F(CrlTest, AClientRefusesARevokedWorker) {
  EXPECT_TRUE(ConnectTo(stolen_, "").ok());
  const std::string crl = authority_.Revoke("crl", {stolen_.certificate_file});
  EXPECT_TRUE(ConnectTo(good_, crl).ok()) << ConnectTo(good_, crl);
  EXPECT_THAT(std::string(ConnectTo(stolen_, crl).message()), HasSubstr("the certificate of w-1 is revoked"));
}

TEST_F(CrlTest, AListenerRefusesARevokedClientOnceTheListNamesIt) {
  TimePoint now = TimePoint() + std::chrono::hours(1);
  const std::string crl = authority_.Revoke("crl", {});
  const auto context = TlsContext::CreateForListener(Listener(crl), [&] { return now; });
  ASSERT_TRUE(context.ok()) << context.status();
  EXPECT_TRUE(Accept(**context, stolen_).ok());
  authority_.Revoke("crl", {stolen_.certificate_file});
  now += std::chrono::seconds(1);
  EXPECT_THAT(std::string(Accept(**context, stolen_).message()), HasSubstr("is revoked"));
  EXPECT_TRUE(Accept(**context, good_).ok());
  testing::WriteFile(crl, "no list");
  now += std::chrono::seconds(1);
  EXPECT_THAT(std::string(Accept(**context, stolen_).message()), HasSubstr("is revoked")) << "the last good list";
  EXPECT_THAT(std::string((*context)->reload_status().message()), HasSubstr("listener_tls.crl"));
}

TEST_F(CrlTest, AConnectionThatStandsIsCheckedAgainstANewerList) {
  TestAuthority below(folder_.path(), "below", &authority_);
  const TestIdentity issued = below.Issue("issued");
  const auto lists = [&](const std::vector<std::string>& of_root, const std::vector<std::string>& of_below,
                         bool valid = true) {
    const std::string path = folder_.path() / "lists";
    testing::ReplaceFile(path, testing::ReadFile(authority_.Revoke("1", of_root, valid)) +
                                   testing::ReadFile(below.Revoke("2", of_below, valid)));
    return path;
  };
  const auto checked = [&](const std::string& list) {
    const auto newer = TlsContext::CreateForListener(Listener(list));
    EXPECT_TRUE(newer.ok()) << newer.status();
    return filter_->CheckPeer(*(*newer)->Current());
  };
  const auto context = TlsContext::CreateForListener(Listener(lists({}, {})));
  ASSERT_TRUE(context.ok()) << context.status();
  EXPECT_TRUE(Accept(**context, issued).ok());
  EXPECT_EQ(checked(""), absl::OkStatus());
  EXPECT_EQ(checked(lists({stolen_.certificate_file}, {})), absl::OkStatus());
  EXPECT_EQ(checked(lists({}, {}, /*valid=*/false)), absl::OkStatus()) << "it names no certificate";
  const absl::Status revoked = absl::UnavailableError("the certificate of 10.0.0.7:1 is revoked");
  EXPECT_EQ(checked(lists({}, {issued.certificate_file})), revoked);
  EXPECT_EQ(checked(lists({}, {issued.certificate_file}, /*valid=*/false)), revoked);
  EXPECT_EQ(checked(lists({below.file()}, {})),
            absl::UnavailableError("the certificate \"below\" that 10.0.0.7:1 relies on is revoked"));
}

TEST_F(CrlTest, WhatCannotBeCheckedIsRefused) {
  EXPECT_THAT(
      std::string(ConnectTo(good_, authority_.Revoke("old", {}, /*valid=*/false)).message()),
      HasSubstr("the certificate of w-1 cannot be checked: the CRL of its authority, \"authority\", expired at"));
  EXPECT_THAT(std::string(ConnectTo(good_, stranger_.Revoke("other", {})).message()),
              HasSubstr("the certificate of w-1 cannot be checked: there is no CRL of its authority, \"authority\""));
}

TEST_F(CrlTest, ChecksTheCertificateOfAClientOfAnotherTls) {
  const auto context = TlsContext::CreateForListener(Listener(authority_.Revoke("crl", {stolen_.certificate_file})));
  ASSERT_TRUE(context.ok()) << context.status();
  const auto check = [&](const TestIdentity& client) {
    return CheckClientCertificate(*(*context)->Current(), testing::ReadFile(client.certificate_file), "");
  };
  EXPECT_TRUE(check(good_).ok()) << check(good_);
  EXPECT_EQ(check(stolen_),
            absl::UnauthenticatedError("the certificate of a client (localhost, 127.0.0.1) is revoked"));
  EXPECT_THAT(check(stranger_.Issue("other")), HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(CheckClientCertificate(*(*context)->Current(), "", ""), HasCode(absl::StatusCode::kUnauthenticated));
}

TEST_F(CrlTest, ChecksItAgainstAListThatHasExpired) {
  const auto context = TlsContext::CreateForListener(Listener(authority_.Revoke("crl", {}, /*valid=*/false)));
  ASSERT_TRUE(context.ok()) << context.status();
  EXPECT_THAT(
      std::string(
          CheckClientCertificate(*(*context)->Current(), testing::ReadFile(good_.certificate_file), "").message()),
      HasSubstr("the CRL of its authority, \"authority\", expired"));
}

TEST_F(CrlTest, NamesTheFieldOfAFileThatIsNoList) {
  EXPECT_THAT(ReadCrls({.field = "tls.crl", .path = "/none"}).status(), HasCode(absl::StatusCode::kNotFound));
  ServerTls tls = Listener(authority_.file()).files;
  EXPECT_THAT(std::string(ValidateServerTls(tls).message()), HasSubstr("tls.crl"));
  EXPECT_THAT(std::string(ConnectTo(good_, authority_.file()).message()), HasSubstr("crl_file"));
  EXPECT_THAT(std::string(ReadCrls({.field = "tls.crl", .path = authority_.file()}).status().message()),
              HasSubstr("has no CRL in PEM"));
}

}  // namespace
}  // namespace sluice
