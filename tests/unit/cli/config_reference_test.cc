#include "lib/cli/config_reference.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sluice/v1/config.pb.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(ConfigReferenceTest, HasARowForEachField) {
  const std::string text = ConfigReference("sluice-link", "Divides.", *v1::LinkDaemonConfig::descriptor());
  EXPECT_THAT(text, StartsWith("## sluice-link\n\nDivides.\n\n| field | flag | type | default | meaning |\n|---|"));
  EXPECT_THAT(text, HasSubstr("\n| `socket` | `--socket` | string |  | Path of the Unix socket to serve on |\n"));
  EXPECT_THAT(text, HasSubstr("\n| `allowed_uids` | `--allowed_uids` | list of numbers | the user of this process | "));
  EXPECT_THAT(text, HasSubstr("\n| `link.mtu` | `--mtu` | number | 1500 | "));
}

TEST(ConfigReferenceTest, AFieldWithoutAFlagHasARowAndAFieldThatTheProgramLacksHasNone) {
  const std::string text = ConfigReference("sluice-link", "Divides.", *v1::LinkDaemonConfig::descriptor());
  EXPECT_THAT(text, HasSubstr("\n| `link.frame` |  | number | from mtu | "));
  EXPECT_THAT(text, Not(HasSubstr("initial_window")));
}

TEST(ConfigReferenceTest, AListOfMessagesHasRowsForTheirFields) {
  const std::string text = ConfigReference("sluice-proxy", "Carries.", *v1::ProxyConfig::descriptor());
  EXPECT_THAT(text, HasSubstr("\n| `routes` | `--route` | list of objects | none | "));
  EXPECT_THAT(text, HasSubstr("\n| `routes[].listen` |  | string |  | "));
}

}  // namespace
}  // namespace sluice
