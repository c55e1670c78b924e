#include "lib/tls/server_tls.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/storage/stripe/striped_folder.h"
#include "tests/unit/tls/test_authority.h"

namespace sluice {
namespace {

using ::testing::StartsWith;

TEST(ValidateServerTlsTest, ErrorsNameTheFieldOfTheConfig) {
  const testing::TemporaryFolder folder;
  testing::TestAuthority authority(folder.path(), "authority");
  const testing::TestIdentity identity = authority.Issue("server");
  const ServerTls good{
      .certificate_file = identity.certificate_file, .key_file = identity.key_file, .client_ca_file = authority.file()};
  EXPECT_TRUE(ValidateServerTls(good).ok()) << ValidateServerTls(good);
  ServerTls tls = good;
  tls.client_ca_file.clear();
  EXPECT_TRUE(ValidateServerTls(tls).ok()) << "clients need no certificate";
  const auto error = [](const ServerTls& bad) { return std::string(ValidateServerTls(bad).message()); };
  tls = good;
  tls.certificate_file = "/none";
  EXPECT_THAT(error(tls), StartsWith("tls.certificate: \"/none\""));
  tls = good;
  tls.key_file = "/none";
  EXPECT_THAT(error(tls), StartsWith("tls.key: \"/none\""));
  tls = good;
  tls.client_ca_file = "/none";
  EXPECT_THAT(error(tls), StartsWith("tls.client_ca: \"/none\""));
}

}  // namespace
}  // namespace sluice
