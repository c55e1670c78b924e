#include "lib/storage/stripe/stripe_verifier.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/storage/stripe/crc32c.h"
#include "tests/unit/storage/stripe/striped_folder.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// "data", 95 bytes in SRUs of 10 over 3 workers with 2 replicas.
class StripeVerifierTest : public ::testing::Test {
 protected:
  StripeVerifierTest() {
    EXPECT_TRUE(testing::StripeBytes(
                    source_, {.root = folder_.path(), .file = "data", .workers = 3, .sru_bytes = 10, .replicas = 2})
                    .ok());
  }

  std::filesystem::path Path(const std::string& name) { return folder_.path() / name; }

  std::vector<std::string> Problems(bool partial = false) {
    std::vector<std::string> problems;
    const auto report = VerifyStripes(
        folder_.path(), {.partial = partial, .on_problem = [&](const std::string& p) { problems.push_back(p); }});
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->problems, problems.size());
    return problems;
  }

  const std::string source_ = testing::SourceBytes(95);
  testing::TemporaryFolder folder_;
};

TEST_F(StripeVerifierTest, ReadsEveryCopyOfEveryFile) {
  ASSERT_TRUE(testing::StripeBytes("", {.root = folder_.path(), .file = "empty", .workers = 1, .sru_bytes = 1}).ok());
  const auto report = VerifyStripes(folder_.path(), {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->files, 2u);
  EXPECT_EQ(report->stripes, 7u);
  EXPECT_EQ(report->srus, 20u);
  EXPECT_EQ(report->bytes, 190u);
  EXPECT_EQ(report->problems, 0u);
}

TEST_F(StripeVerifierTest, NamesAFlippedByteWithBothChecksums) {
  testing::FlipByte(Path("worker-0001/data/stripe-0"), 13);
  std::string found = source_.substr(40, 10);
  found[3] ^= 1;
  EXPECT_THAT(Problems(),
              ElementsAre(absl::StrFormat("worker-0001/data: SRU 4 in stripe-0: CRC32C expected %08x, found %08x",
                                          Crc32c(source_.substr(40, 10)), Crc32c(found))));
}

TEST_F(StripeVerifierTest, FindsTwoSrusThatChangedPlaces) {
  const std::string stripe = testing::ReadFile(Path("worker-0002/data/stripe-1"));
  testing::WriteFile(Path("worker-0002/data/stripe-1"),
                     stripe.substr(10, 10) + stripe.substr(0, 10) + stripe.substr(20));
  EXPECT_THAT(Problems(), AllOf(SizeIs(2), Each(HasSubstr("worker-0002/data: SRU ")), Contains(HasSubstr("SRU 1 in")),
                                Contains(HasSubstr("SRU 4 in"))));
}

TEST_F(StripeVerifierTest, TellsStripesOfAnotherLength) {
  std::filesystem::resize_file(Path("worker-0000/data/stripe-0"), 17);
  std::filesystem::resize_file(Path("worker-0001/data/stripe-0"), 31);
  EXPECT_THAT(Problems(), ElementsAre("worker-0000/data: stripe-0 has 17 bytes, expected 35",
                                      "worker-0001/data: stripe-0 has 31 bytes, expected 30"));
}

TEST_F(StripeVerifierTest, TellsAMissingStripeAndAMissingManifest) {
  std::filesystem::remove(Path("worker-0000/data/stripe-1"));
  std::filesystem::remove(Path("worker-0002/data/manifest"));
  EXPECT_THAT(Problems(), ElementsAre("worker-0000/data: no stripe-1 of file data at worker 0 here",
                                      "worker-0002/data: no manifest of file data at worker 2 here"));
}

TEST_F(StripeVerifierTest, TellsACorruptedManifestAndGoesOnWithTheOthers) {
  testing::FlipByte(Path("worker-0000/data/manifest"), 30);
  testing::FlipByte(Path("worker-0001/data/stripe-0"), 0);
  EXPECT_THAT(Problems(), ElementsAre(HasSubstr("worker-0000/data: manifest is corrupted"),
                                      HasSubstr("worker-0001/data: SRU 1 in stripe-0")));
}

TEST_F(StripeVerifierTest, TellsAManifestOfAnotherStriping) {
  testing::TemporaryFolder other;
  ASSERT_TRUE(testing::StripeBytes(testing::SourceBytes(94),
                                   {.root = other.path(), .file = "data", .workers = 3, .sru_bytes = 10, .replicas = 2})
                  .ok());
  std::filesystem::copy_file(other.path() / "worker-0002/data/manifest", Path("worker-0002/data/manifest"),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(Problems(), ElementsAre("worker-0002/data: the manifest differs from that of worker-0000"));
}

TEST_F(StripeVerifierTest, TellsAFileWithoutAnyValidManifest) {
  for (const char* worker : {"worker-0000", "worker-0001", "worker-0002"})
    std::filesystem::resize_file(Path(worker) / "data/manifest", 20);
  EXPECT_THAT(Problems(), AllOf(SizeIs(4), Contains(HasSubstr("truncated: 20 bytes of 24")),
                                Contains(HasSubstr("no worker here has a valid manifest"))));
}

TEST_F(StripeVerifierTest, MissesTheFolderOfAWorkerUnlessToldNotTo) {
  std::filesystem::remove_all(Path("worker-0001"));
  EXPECT_THAT(Problems(), ElementsAre("worker-0001/data: the folder of this worker is missing"));
  EXPECT_THAT(Problems(/*partial=*/true), IsEmpty());
}

TEST_F(StripeVerifierTest, FailsOnlyWhereThereIsNoFolder) {
  EXPECT_EQ(VerifyStripes(Path("nowhere"), {}).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace sluice
