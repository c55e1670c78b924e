#include "lib/tls/tls_context.h"

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/tls/openssl_types.h"
#include "tests/unit/tls/test_certificates.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ReadFile;
using testing::ReplaceFile;
using testing::TestCertificates;

class ValidateTlsTest : public ::testing::Test {
 protected:
  // Expects a refusal with `code` and a message that contains the field, the file and `why`.
  void ExpectRefusal(const TlsOptions& options, absl::StatusCode code, const std::string& field,
                     const std::string& file, const std::string& why) {
    const absl::Status status = ValidateTls(options);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(absl::StrCat(field, ": \"", file, "\"")), HasSubstr(why)));
    EXPECT_EQ(TlsContext::Create(options).status(), status);
  }

  TestCertificates certificates_;
  const TestCertificates::Files client_ = certificates_.Make("client");
};

TEST_F(ValidateTlsTest, TakesTheSystemsAuthoritiesOrAFileAndAnOwnCertificate) {
  EXPECT_TRUE(ValidateTls({}).ok());
  EXPECT_TRUE(ValidateTls(certificates_.ClientOptions()).ok());
  EXPECT_TRUE(ValidateTls(certificates_.ClientOptions(client_)).ok());
}

TEST_F(ValidateTlsTest, TakesAChainAndTextBetweenCertificates) {
  TestCertificates others(TestCertificates::Key::kEcdsa, /*intermediate=*/true);
  ReplaceFile(certificates_.ca_file(),
              absl::StrCat("# first\n", ReadFile(certificates_.ca_file()), "second:\n", ReadFile(others.ca_file())));
  EXPECT_TRUE(ValidateTls(certificates_.ClientOptions(others.Make("client"))).ok());
}

TEST_F(ValidateTlsTest, RefusesACertificateWithoutAKeyAndTheReverse) {
  EXPECT_EQ(ValidateTls({.certificate_file = client_.certificate_file}),
            absl::InvalidArgumentError("certificate_file is set and key_file is not; set both"));
  EXPECT_EQ(ValidateTls({.key_file = client_.key_file}),
            absl::InvalidArgumentError("key_file is set and certificate_file is not; set both"));
}

TEST_F(ValidateTlsTest, NamesAFileThatIsNotThere) {
  const std::string gone = certificates_.Path("gone");
  ExpectRefusal({.ca_file = gone}, absl::StatusCode::kNotFound, "ca_file", gone, "No such file");
  ExpectRefusal({.certificate_file = gone, .key_file = client_.key_file}, absl::StatusCode::kNotFound,
                "certificate_file", gone, "No such file");
  ExpectRefusal({.certificate_file = client_.certificate_file, .key_file = gone}, absl::StatusCode::kNotFound,
                "key_file", gone, "No such file");
}

TEST_F(ValidateTlsTest, NamesAFileThatCannotBeRead) {
  const std::string folder = certificates_.Path("folder");
  std::filesystem::create_directory(folder);
  ExpectRefusal({.ca_file = folder}, absl::StatusCode::kInvalidArgument, "ca_file", folder, "");
}

TEST_F(ValidateTlsTest, NamesAFileThatDoesNotParse) {
  const std::string odd = certificates_.Path("odd");
  const std::string good = ReadFile(certificates_.ca_file());
  const std::string key_in_place = ReadFile(client_.key_file);
  for (const std::string& content : {std::string(), std::string("no PEM"), key_in_place}) {
    ReplaceFile(odd, content);
    ExpectRefusal({.ca_file = odd}, absl::StatusCode::kInvalidArgument, "ca_file", odd, "no certificate in PEM");
  }
  for (const std::string& content : {good.substr(0, good.size() / 2), good + good.substr(0, good.size() - 30)}) {
    ReplaceFile(odd, content);
    ExpectRefusal({.ca_file = odd}, absl::StatusCode::kInvalidArgument, "ca_file", odd, "does not parse");
    ExpectRefusal({.certificate_file = odd, .key_file = client_.key_file}, absl::StatusCode::kInvalidArgument,
                  "certificate_file", odd, "does not parse");
  }
  ReplaceFile(odd, good);
  ExpectRefusal({.certificate_file = client_.certificate_file, .key_file = odd}, absl::StatusCode::kInvalidArgument,
                "key_file", odd, "no private key");
}

TEST_F(ValidateTlsTest, NamesAKeyThatIsNotTheCertificatesAndShowsNothingOfIt) {
  const auto other = certificates_.Make("other");
  ExpectRefusal({.certificate_file = client_.certificate_file, .key_file = other.key_file},
                absl::StatusCode::kInvalidArgument, "key_file", other.key_file,
                absl::StrCat("is not the key of the first certificate in \"", client_.certificate_file, "\""));
  TestCertificates rsa(TestCertificates::Key::kRsa2048);
  const auto of_another_kind = rsa.Make("rsa");
  ExpectRefusal({.certificate_file = client_.certificate_file, .key_file = of_another_kind.key_file},
                absl::StatusCode::kInvalidArgument, "key_file", of_another_kind.key_file, "is not the key");
}

TEST_F(ValidateTlsTest, DoesNotAskForAPassPhrase) {
  const KeyPtr key(EVP_EC_gen("P-256"));
  const std::string locked = certificates_.Path("locked.key");
  const BioPtr bio(BIO_new_file(locked.c_str(), "w"));
  ASSERT_EQ(PEM_write_bio_PKCS8PrivateKey(bio.get(), key.get(), EVP_aes_256_cbc(), "secret", 6, nullptr, nullptr), 1);
  ASSERT_EQ(BIO_flush(bio.get()), 1);
  ExpectRefusal({.certificate_file = client_.certificate_file, .key_file = locked}, absl::StatusCode::kInvalidArgument,
                "key_file", locked, "pass phrase");
}

TEST(ValidateListenerTlsTest, NamesTheFieldAndItsValue) {
  TestCertificates certificates;
  const auto files = certificates.Make("listener");
  const ListenerTls good{.files = {.certificate_file = files.certificate_file,
                                   .key_file = files.key_file,
                                   .client_ca_file = certificates.ca_file()},
                         .client_names = {"a.example", "spiffe://mesh/a"}};
  EXPECT_TRUE(ValidateListenerTls(good).ok()) << ValidateListenerTls(good);
  const std::pair<std::function<void(ListenerTls&)>, const char*> cases[] = {
      {[](auto& tls) { tls.files.certificate_file.clear(); }, "listener_tls.certificate is empty; a listener with TLS"},
      {[](auto& tls) { tls.files.key_file.clear(); }, "listener_tls.key is empty"},
      {[](auto& tls) { tls.files.client_ca_file.clear(); }, "listener_tls.client_ca is empty"},
      {[](auto& tls) { tls.client_names.push_back(""); }, "listener_tls.client_names: \"\" is not 1 to 2048"},
      {[](auto& tls) { tls.client_names.push_back("a b"); }, "listener_tls.client_names: \"a b\" is not 1 to 2048"},
      {[](auto& tls) { tls.client_names.push_back("\n"); }, "listener_tls.client_names: \"\\n\" is not"},
      {[](auto& tls) { tls.client_names.push_back(std::string(2049, 'x')); }, "is not 1 to 2048 printable"},
  };
  for (const auto& [spoil, why] : cases) {
    ListenerTls bad = good;
    spoil(bad);
    for (const absl::Status& status :
         {ValidateListenerTls(bad, /*look_at_files=*/false), TlsContext::CreateForListener(bad).status()}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()), HasSubstr(why));
    }
  }
  for (const auto& [field, file] : {std::pair("certificate", &ServerTls::certificate_file),
                                    {"key", &ServerTls::key_file},
                                    {"client_ca", &ServerTls::client_ca_file}}) {
    ListenerTls bad = good;
    bad.files.*file = "/none";
    EXPECT_TRUE(ValidateListenerTls(bad, /*look_at_files=*/false).ok());
    EXPECT_EQ(ValidateListenerTls(bad).code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(ValidateListenerTls(bad).message()),
                HasSubstr(absl::StrCat("listener_tls.", field, ": \"/none\"")));
  }
}

// Uses a clock that the test controls.
class TlsContextTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto context =
        TlsContext::Create(certificates_.ClientOptions(certificates_.Make("client")), [this] { return now_; });
    ASSERT_TRUE(context.ok()) << context.status();
    context_ = *context;
  }

  std::string Serial() const {
    const ASN1_INTEGER* const serial = X509_get0_serialNumber(SSL_CTX_get0_certificate(context_->Current().get()));
    return absl::StrCat(ASN1_INTEGER_get(serial));
  }

  TestCertificates certificates_;
  TimePoint now_{seconds(1000)};
  std::shared_ptr<TlsContext> context_;
};

TEST_F(TlsContextTest, GivesTheSameWhileNothingChanges) {
  const auto first = context_->Current();
  now_ += seconds(5);
  EXPECT_EQ(context_->Current(), first);
  EXPECT_TRUE(context_->reload_status().ok());
}

TEST_F(TlsContextTest, TakesFilesThatChangedAtItsNextLookHalfASecondLater) {
  const std::string before = Serial();
  certificates_.Make("client");
  now_ += milliseconds(499);
  EXPECT_EQ(Serial(), before);
  now_ += milliseconds(1);
  EXPECT_NE(Serial(), before);
  EXPECT_TRUE(context_->reload_status().ok());
}

TEST_F(TlsContextTest, TakesANewFileOfTheSameSizeAndTime) {
  const std::string file = certificates_.ca_file();
  const auto time = std::filesystem::last_write_time(file);
  const auto first = context_->Current();
  ReplaceFile(file, ReadFile(file));
  std::filesystem::last_write_time(file, time);
  now_ += seconds(1);
  EXPECT_NE(context_->Current(), first);
}

TEST_F(TlsContextTest, FollowsALinkThatPointsElsewhere) {
  // Replace the files as Kubernetes rotates a mounted secret.
  TestCertificates others;
  const std::string link = certificates_.Path("linked.pem");
  std::filesystem::create_symlink(certificates_.ca_file(), link);
  const auto linked = TlsContext::Create({.ca_file = link}, [this] { return now_; });
  ASSERT_TRUE(linked.ok());
  const auto first = (*linked)->Current();
  std::filesystem::create_symlink(others.ca_file(), link + ".new");
  std::filesystem::rename(link + ".new", link);
  now_ += seconds(1);
  EXPECT_NE((*linked)->Current(), first);
}

TEST_F(TlsContextTest, KeepsTheLastGoodFilesUntilThereAreOthersAndSaysWhy) {
  const std::string before = Serial();
  const std::string key = ReadFile(certificates_.Path("client.key"));
  // Half a rotation: the certificate is new, and the key is still old.
  certificates_.Make("client");
  const std::string new_key = ReadFile(certificates_.Path("client.key"));
  ReplaceFile(certificates_.Path("client.key"), key);
  now_ += seconds(1);
  EXPECT_EQ(Serial(), before);
  EXPECT_EQ(context_->reload_status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(context_->reload_status().message()),
              AllOf(HasSubstr("key_file"), HasSubstr("is not the key"), Not(HasSubstr(new_key.substr(30, 20)))));
  ReplaceFile(certificates_.Path("client.key"), new_key);
  now_ += seconds(1);
  EXPECT_NE(Serial(), before);
  EXPECT_TRUE(context_->reload_status().ok());
}

TEST_F(TlsContextTest, AFileThatIsGoneForAWhileDoesNoHarm) {
  const auto first = context_->Current();
  std::filesystem::rename(certificates_.ca_file(), certificates_.Path("away"));
  now_ += seconds(1);
  EXPECT_EQ(context_->Current(), first);
  EXPECT_EQ(context_->reload_status().code(), absl::StatusCode::kNotFound);
  std::filesystem::rename(certificates_.Path("away"), certificates_.ca_file());
  now_ += seconds(1);
  EXPECT_NE(context_->Current(), nullptr);
  EXPECT_TRUE(context_->reload_status().ok());
}

// The listener's context is a separate context, and checks its files as the clients' context does.
TEST_F(TlsContextTest, AListenersFilesAreReadAgainToo) {
  const auto files = certificates_.Make("listener");
  const auto context = TlsContext::CreateForListener({.files = {.certificate_file = files.certificate_file,
                                                                .key_file = files.key_file,
                                                                .client_ca_file = certificates_.ca_file()},
                                                      .client_names = {"a"}},
                                                     [this] { return now_; });
  ASSERT_TRUE(context.ok()) << context.status();
  EXPECT_EQ((*context)->client_names(), std::vector<std::string>{"a"});
  for (const std::string& file : {files.certificate_file, certificates_.ca_file()}) {
    const auto before = (*context)->Current();
    const std::string good = ReadFile(file);
    ReplaceFile(file, "no PEM");
    now_ += seconds(1);
    EXPECT_EQ((*context)->Current(), before);
    EXPECT_THAT(std::string((*context)->reload_status().message()), HasSubstr(file));
    ReplaceFile(file, good);
    now_ += seconds(1);
    EXPECT_NE((*context)->Current(), before);
    EXPECT_TRUE((*context)->reload_status().ok());
  }
}

TEST_F(TlsContextTest, AConnectionKeepsWhatItWasMadeWith) {
  const std::shared_ptr<SSL_CTX> before = context_->Current();
  const SslPtr connection(SSL_new(before.get()));
  certificates_.Make("client");
  now_ += seconds(1);
  EXPECT_NE(context_->Current(), before);
  EXPECT_EQ(SSL_get_SSL_CTX(connection.get()), before.get());
}

}  // namespace
}  // namespace sluice
