#include "lib/storage/stripe/file_descriptor.h"

#include <cerrno>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/has_code.h"

namespace sluice {
namespace {

using testing::HasCode;

TEST(ErrnoStatus, TellsABrokenDiskFromAMissingFile) {
  for (const int broken : {EIO, EBADMSG, EUCLEAN}) {
    EXPECT_THAT(ErrnoStatus(broken, "read"), HasCode(absl::StatusCode::kDataLoss));
  }
  EXPECT_EQ(ErrnoStatus(EIO, "read of a stripe").message(), "read of a stripe: Input/output error");
  EXPECT_THAT(ErrnoStatus(ENOENT, "read"), HasCode(absl::StatusCode::kNotFound));
  EXPECT_THAT(ErrnoStatus(EMFILE, "read"), HasCode(absl::StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace sluice
