#include "lib/tls/pem_file.h"

#include <cstdio>
#include <filesystem>
#include <string>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/storage/stripe/striped_folder.h"
#include "tests/unit/tls/test_authority.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ReadFile;
using ::testing::StartsWith;
using testing::TestAuthority;
using testing::TestIdentity;
using testing::WriteFile;

class PemFileTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_.path() / name; }

  std::string Write(const std::string& name, const std::string& text) const {
    WriteFile(Path(name), text);
    return Path(name);
  }

  static absl::Status Check(const TestIdentity& identity) {
    return ReadIdentity({.field = "certificate", .path = identity.certificate_file},
                        {.field = "key", .path = identity.key_file})
        .status();
  }

  static absl::Status ReadCa(const std::string& path) {
    return ReadCertificates({.field = "ca", .path = path}).status();
  }

  void ExpectRefused(const absl::Status& status, const std::string& field, const std::string& path,
                     const std::string& why, absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(StartsWith(field + ": \"" + path + "\" "), HasSubstr(why)));
  }

  testing::TemporaryFolder folder_;
  TestAuthority authority_{folder_.path(), "authority"};
};

TEST_F(PemFileTest, AnIdentityIsAChainAndTheKeyOfItsFirstCertificate) {
  const TestIdentity identity = authority_.Issue("server");
  EXPECT_TRUE(Check(identity).ok()) << Check(identity);
  const std::string chain =
      Write("chain", ReadFile(identity.certificate_file) + "between the two\n" + ReadFile(authority_.file()));
  const auto read = ReadIdentity({.field = "certificate", .path = chain}, {.field = "key", .path = identity.key_file});
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->chain.size(), 2u);
  EXPECT_EQ(X509_check_private_key(read->chain[0].get(), read->key.get()), 1);
  EXPECT_EQ(X509_check_issued(read->chain[1].get(), read->chain[0].get()), X509_V_OK);
  const std::string turned = Write("turned", ReadFile(authority_.file()) + ReadFile(identity.certificate_file));
  ExpectRefused(Check({.certificate_file = turned, .key_file = identity.key_file}), "key", identity.key_file, turned);
}

TEST_F(PemFileTest, TheKeyOfAnotherCertificateIsRefused) {
  const TestIdentity one = authority_.Issue("one");
  const TestIdentity other = authority_.Issue("other");
  ExpectRefused(Check({.certificate_file = one.certificate_file, .key_file = other.key_file}), "key", other.key_file,
                "is not the key of the first certificate in \"" + one.certificate_file + "\"");
}

TEST_F(PemFileTest, AFileThatCannotBeReadIsNamed) {
  const TestIdentity identity = authority_.Issue("server");
  ExpectRefused(ReadCa(Path("none")), "ca", Path("none"), "No such file", absl::StatusCode::kNotFound);
  ExpectRefused(ReadCa(folder_.path()), "ca", folder_.path(), "Is a directory");
  ExpectRefused(Check({.certificate_file = Path("none"), .key_file = identity.key_file}), "certificate", Path("none"),
                "No such file", absl::StatusCode::kNotFound);
  ExpectRefused(Check({.certificate_file = identity.certificate_file, .key_file = Path("none")}), "key", Path("none"),
                "No such file", absl::StatusCode::kNotFound);
}

TEST_F(PemFileTest, AFileWithoutWhatItIsForIsRefused) {
  const TestIdentity identity = authority_.Issue("server");
  for (const std::string& text : {std::string(), std::string("no PEM"), ReadFile(identity.key_file)}) {
    const std::string path = Write("file", text);
    ExpectRefused(ReadCa(path), "ca", path, "has no certificate in PEM");
  }
  ExpectRefused(Check({.certificate_file = identity.certificate_file, .key_file = identity.certificate_file}), "key",
                identity.certificate_file, "has no private key in PEM");
}

TEST_F(PemFileTest, EveryCertificateOfAFileHasToParse) {
  std::string spoilt = ReadFile(authority_.file());
  spoilt[spoilt.size() / 2] = '!';
  const std::string path = Write("spoilt", ReadFile(authority_.file()) + spoilt);
  ExpectRefused(ReadCa(path), "ca", path, "does not parse, number 2");
  EXPECT_TRUE(ReadCa(authority_.file()).ok()) << "no error is left behind";
}

TEST_F(PemFileTest, AFileBeyondTheBoundIsRefused) {
  const std::string path = Write("large", std::string((1 << 20) + 1, '\n'));
  ExpectRefused(ReadCa(path), "ca", path, "more than 1048576 bytes");
}

// The pass phrase must not be prompted for on the terminal.
TEST_F(PemFileTest, AKeyWithAPassPhraseIsRefused) {
  const TestIdentity identity = authority_.Issue("server");
  std::FILE* file = std::fopen(Path("locked").c_str(), "w");
  ASSERT_NE(file, nullptr);
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  char password[] = "password";
  EXPECT_EQ(PEM_write_PrivateKey(file, key, EVP_aes_256_cbc(), nullptr, 0, nullptr, password), 1);
  EVP_PKEY_free(key);
  std::fclose(file);
  ExpectRefused(Check({.certificate_file = identity.certificate_file, .key_file = Path("locked")}), "key",
                Path("locked"), "encrypted with a pass phrase");
}

}  // namespace
}  // namespace sluice
