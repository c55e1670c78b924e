#include "lib/storage/stripe/stripe_store.h"

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>

#include <sys/stat.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/storage/stripe/manifest.h"
#include "tests/unit/storage/stripe/striped_folder.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// "data", 95 bytes in SRUs of 10 over 3 workers with 2 replicas.
class StripeStoreTest : public ::testing::Test {
 protected:
  StripeStoreTest() {
    const auto manifest = testing::StripeBytes(
        source_, {.root = folder_.path(), .file = "data", .workers = 3, .sru_bytes = 10, .replicas = 2});
    EXPECT_TRUE(manifest.ok()) << manifest.status();
  }

  void ExpectRefused(const absl::Status& status, absl::StatusCode code, const std::string& message) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }

  std::filesystem::path Path(const std::string& name) { return folder_.path() / name; }

  const std::string source_ = testing::SourceBytes(95);
  testing::TemporaryFolder folder_;
  const StripeStore store_ = StripeStore::Open(folder_.path()).value();
  std::string out_;
};

TEST_F(StripeStoreTest, OpensOnlyAFolder) {
  ExpectRefused(StripeStore::Open(Path("nowhere")).status(), absl::StatusCode::kNotFound, "nowhere");
  EXPECT_FALSE(StripeStore::Open(Path("worker-0000/data/manifest")).ok());
}

TEST_F(StripeStoreTest, ListsWorkersAndFiles) {
  std::filesystem::create_directory(Path("worker-10000"));
  std::filesystem::create_directory(Path("worker-9999"));
  std::filesystem::create_directory(Path("lost+found"));
  std::filesystem::create_directory(Path("worker-0000/.new-other"));
  EXPECT_THAT(store_.Workers().value(), ElementsAre(0, 1, 2, 9999, 10000));
  EXPECT_THAT(store_.Files(0).value(), ElementsAre("data"));
  EXPECT_THAT(store_.Files(9999).value(), IsEmpty());
  EXPECT_EQ(store_.Files(7).status().code(), absl::StatusCode::kNotFound);
}

// The kernel still has the bytes that the test has just written in its memory.
TEST_F(StripeStoreTest, ReadsWhatTheKernelHas) {
  if (!store_.CanReadCached(0)) GTEST_SKIP() << "the file system of the test may wait for a disk";
  ASSERT_TRUE(store_.Read(0, "data", 1, 10, 10, &out_).ok());
  std::string cached;
  if (!store_.ReadCached(0, "data", 1, 10, 10, 20, &cached)) GTEST_SKIP() << "this kernel has no RESOLVE_CACHED";
  EXPECT_EQ(cached, out_);
  EXPECT_FALSE(store_.ReadCached(0, "data", 1, 10, 10, 1000, &cached)) << "the stripe is shorter";
  EXPECT_FALSE(store_.ReadCached(0, "data", 1, 1000, 10, 0, &cached));
  EXPECT_FALSE(store_.ReadCached(0, "data", 1, std::numeric_limits<uint64_t>::max(), 10, 0, &cached));
  EXPECT_FALSE(store_.ReadCached(0, "data", 1, 10, 0, 0, &cached));
  EXPECT_FALSE(store_.ReadCached(0, "data", 7, 10, 10, 0, &cached));
  EXPECT_FALSE(store_.ReadCached(7, "data", 0, 10, 10, 0, &cached));
  EXPECT_FALSE(store_.ReadCached(0, "../worker-0000/data", 0, 10, 10, 0, &cached));
  EXPECT_FALSE(store_.CanReadCached(7));
  std::filesystem::create_directory_symlink(Path("worker-0000/data"), Path("worker-0000/link"));
  EXPECT_FALSE(store_.ReadCached(0, "link", 1, 10, 10, 0, &cached));
  std::filesystem::remove(Path("worker-0000/data/stripe-0"));
  ASSERT_EQ(mkfifo(Path("worker-0000/data/stripe-0").c_str(), 0600), 0);
  EXPECT_FALSE(store_.ReadCached(0, "data", 0, 0, 10, 0, &cached));
}

TEST_F(StripeStoreTest, IsReadableWhileItsFoldersCanBeOpened) {
  EXPECT_TRUE(store_.CheckReadable().ok()) << store_.CheckReadable();
  std::filesystem::create_symlink(Path("worker-0000"), Path("worker-0007"));  // which it does not follow
  ExpectRefused(store_.CheckReadable(), absl::StatusCode::kNotFound, "no worker 7 here");
  std::filesystem::remove_all(folder_.path());
  ExpectRefused(store_.CheckReadable(), absl::StatusCode::kNotFound, "the folder was removed");
  std::filesystem::create_directory(folder_.path());  // for the end of the test
}

TEST_F(StripeStoreTest, ReadsWhatBelongsToAWorker) {
  ASSERT_TRUE(store_.Read(1, "data", 0, 10, 10, &out_).ok());
  EXPECT_EQ(out_, source_.substr(40, 10));  // SRU 4
  ASSERT_TRUE(store_.Read(1, "data", 1, 0, 10, &out_).ok());
  EXPECT_EQ(out_, source_.substr(0, 10));  // SRU 0's second copy
}

TEST_F(StripeStoreTest, ReadsARangeAcrossSrus) {
  ASSERT_TRUE(store_.Read(0, "data", 0, 5, 10, &out_).ok());
  EXPECT_EQ(out_, source_.substr(5, 5) + source_.substr(30, 5));
}

TEST_F(StripeStoreTest, FindsFilesThatCameLater) {
  EXPECT_FALSE(store_.Read(0, "later", 0, 0, 1, &out_).ok());
  ASSERT_TRUE(testing::StripeBytes("x", {.root = folder_.path(), .file = "later", .workers = 4, .sru_bytes = 10}).ok());
  EXPECT_TRUE(store_.Read(0, "later", 0, 0, 1, &out_).ok());
  EXPECT_EQ(out_, "x");
}

TEST_F(StripeStoreTest, NamesWhatIsNotHere) {
  ExpectRefused(store_.Read(3, "data", 0, 0, 1, &out_), absl::StatusCode::kNotFound, "no worker 3 here");
  ExpectRefused(store_.Read(std::numeric_limits<uint32_t>::max(), "data", 0, 0, 1, &out_), absl::StatusCode::kNotFound,
                "no worker 4294967295 here");
  ExpectRefused(store_.Read(0, "other", 0, 0, 1, &out_), absl::StatusCode::kNotFound, "no file other at worker 0");
  ExpectRefused(store_.Read(0, "data", 2, 0, 1, &out_), absl::StatusCode::kNotFound, "no stripe-2 of file data");
}

TEST_F(StripeStoreTest, RefusesLengthsOutOfBounds) {
  for (const uint32_t length : {0u, 5u << 20, kMaxReadBytes + 1, std::numeric_limits<uint32_t>::max()}) {
    ExpectRefused(store_.Read(0, "data", 0, 0, length, &out_), absl::StatusCode::kInvalidArgument, "length is ");
    ExpectRefused(store_.ReadManifest(0, "data", 0, length, &out_).status(), absl::StatusCode::kInvalidArgument,
                  "length is ");
  }
}

TEST_F(StripeStoreTest, RefusesARangeThatTheStripeDoesNotHold) {
  ASSERT_TRUE(store_.Read(0, "data", 0, 30, 5, &out_).ok());  // the last SRU, a short one
  for (const uint64_t offset : {uint64_t{31}, uint64_t{35}, uint64_t{36}, uint64_t{1} << 63,
                                std::numeric_limits<uint64_t>::max(), std::numeric_limits<uint64_t>::max() - 4})
    ExpectRefused(store_.Read(0, "data", 0, offset, 5, &out_), absl::StatusCode::kOutOfRange, "has 35 bytes");
}

TEST_F(StripeStoreTest, ChecksARangeWithTheErrorsOfItsRead) {
  EXPECT_TRUE(store_.CheckRange(0, "data", 0, 0, 35).ok());
  ExpectRefused(store_.CheckRange(0, "data", 0, 0, kMaxSruBytes), absl::StatusCode::kOutOfRange, "has 35 bytes");
  ExpectRefused(store_.CheckRange(0, "data", 0, 0, kMaxSruBytes + 1), absl::StatusCode::kInvalidArgument, "length is ");
  ExpectRefused(store_.CheckRange(0, "data", 0, 1, 35), absl::StatusCode::kOutOfRange, "has 35 bytes");
  ExpectRefused(store_.CheckRange(0, "data", 0, 0, 0), absl::StatusCode::kInvalidArgument, "length is ");
  ExpectRefused(store_.CheckRange(0, "other", 0, 0, 1), absl::StatusCode::kNotFound, "no file other at worker 0");
}

TEST_F(StripeStoreTest, TellsATruncatedStripe) {
  std::filesystem::resize_file(Path("worker-0000/data/stripe-0"), 17);
  EXPECT_TRUE(store_.Read(0, "data", 0, 0, 10, &out_).ok());
  ExpectRefused(store_.Read(0, "data", 0, 10, 10, &out_), absl::StatusCode::kOutOfRange,
                "stripe 0 of worker 0 has 17 bytes; wanted 10 from 10");
}

TEST_F(StripeStoreTest, RefusesPathTricks) {
  testing::WriteFile(Path("secret"), "secret");
  for (const std::string& name : {std::string("../secret"), std::string("a/b"), std::string(""), std::string("."),
                                  std::string(".."), std::string("data\0x", 6), std::string(5000, 'x')}) {
    EXPECT_EQ(store_.Read(0, name, 0, 0, 1, &out_).code(), absl::StatusCode::kInvalidArgument) << name.substr(0, 20);
    EXPECT_EQ(store_.ReadManifest(0, name, 0, 1, &out_).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(StripeStoreTest, FollowsNoSymbolicLink) {
  namespace fs = std::filesystem;
  fs::rename(Path("worker-0000/data/stripe-0"), Path("real"));
  fs::create_symlink(Path("real"), Path("worker-0000/data/stripe-0"));
  fs::create_directory_symlink(Path("worker-0001/data"), Path("worker-0000/linked"));
  fs::create_directory_symlink(Path("worker-0001"), Path("worker-0007"));
  ExpectRefused(store_.Read(0, "data", 0, 0, 1, &out_), absl::StatusCode::kNotFound, "it is a link");
  ExpectRefused(store_.Read(0, "linked", 0, 0, 1, &out_), absl::StatusCode::kNotFound, "it is a link");
  ExpectRefused(store_.Read(7, "data", 0, 0, 1, &out_), absl::StatusCode::kNotFound, "it is a link");
}

TEST_F(StripeStoreTest, ReadsOnlyRegularFilesAndWaitsForNone) {
  std::filesystem::remove(Path("worker-0000/data/stripe-0"));
  ASSERT_EQ(mkfifo(Path("worker-0000/data/stripe-0").c_str(), 0600), 0);
  ExpectRefused(store_.Read(0, "data", 0, 0, 1, &out_), absl::StatusCode::kNotFound, "not a regular file");
}

TEST_F(StripeStoreTest, ReadsTheManifestAsStoredInParts) {
  const std::string stored = testing::ReadFile(Path("worker-0002/data/manifest"));
  std::string joined;
  while (joined.size() < stored.size()) {
    ASSERT_EQ(store_.ReadManifest(2, "data", joined.size(), 7, &out_).value(), stored.size());
    ASSERT_FALSE(out_.empty());
    joined += out_;
  }
  EXPECT_EQ(joined, stored);
  EXPECT_TRUE(DecodeManifest(joined).ok());
}

TEST_F(StripeStoreTest, TheEndOfTheManifestIsEmptyAndBeyondItIsNothing) {
  const uint64_t bytes = std::filesystem::file_size(Path("worker-0000/data/manifest"));
  ASSERT_TRUE(store_.ReadManifest(0, "data", bytes, 10, &out_).ok());
  EXPECT_EQ(out_, "");
  ExpectRefused(store_.ReadManifest(0, "data", bytes + 1, 10, &out_).status(), absl::StatusCode::kOutOfRange,
                "the manifest has");
}

TEST_F(StripeStoreTest, TellsAMissingManifest) {
  std::filesystem::remove(Path("worker-0001/data/manifest"));
  ExpectRefused(store_.ReadManifest(1, "data", 0, 100, &out_).status(), absl::StatusCode::kNotFound,
                "no manifest of file data at worker 1 here");
}

}  // namespace
}  // namespace sluice
