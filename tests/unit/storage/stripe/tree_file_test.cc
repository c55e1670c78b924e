#include "lib/storage/stripe/tree_file.h"

#include <filesystem>
#include <string>
#include <vector>

#include <sys/eventfd.h>
#include <sys/file.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/storage/stripe/crc32c.h"
#include "lib/storage/stripe/manifest.h"
#include "lib/storage/stripe/stripe_name.h"
#include "lib/storage/stripe/stripe_verifier.h"
#include "lib/storage/stripe/tree_store.h"
#include "tests/unit/storage/stripe/striped_folder.h"

namespace sluice {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TreeFileTest : public ::testing::Test {
 protected:
  StripeSpec Spec(std::vector<StripeLevel> above, uint32_t workers, uint32_t sru_bytes) {
    return {.root = folder_.path() / "out",
            .file = "data",
            .workers = workers,
            .sru_bytes = sru_bytes,
            .levels_above = std::move(above)};
  }

  std::filesystem::path Out() { return folder_.path() / "out"; }

  // Returns the file of the top level, read from one of its replicas.
  std::string ReadBack(const v1::Manifest& manifest, uint32_t replica) {
    const StripeLayout layout = StripeLayout::Create(manifest).value();
    const auto store = TreeStore::Open(Out()).value();
    std::string file;
    std::string part;
    for (uint64_t sru = 0; sru < layout.SruCount(); ++sru) {
      const absl::Status read = store->Read(layout.Worker(sru, replica), "data", replica, layout.OffsetInStripe(sru),
                                            layout.SruLength(sru), &part);
      EXPECT_TRUE(read.ok()) << read;
      file += part;
    }
    return file;
  }

  std::vector<std::string> Problems() {
    std::vector<std::string> problems;
    const auto report = VerifyStripes(Out(), {.on_problem = [&](const std::string& p) { problems.push_back(p); }});
    EXPECT_TRUE(report.ok()) << report.status();
    return problems;
  }

  testing::TemporaryFolder folder_;
};

TEST_F(TreeFileTest, ComesBackFromEveryReplicaOfTwoAndOfThreeLevels) {
  for (const auto& above : {std::vector<StripeLevel>{{3, 2}}, std::vector<StripeLevel>{{2, 2}, {3, 1}}}) {
    for (const size_t length : {0, 1, 9, 10, 11, 39, 40, 41, 120, 1999}) {
      SCOPED_TRACE(length);
      const std::string source = testing::SourceBytes(length);
      const auto manifest = testing::StripeBytes(source, Spec(above, 4, 10));
      ASSERT_TRUE(manifest.ok()) << manifest.status();
      EXPECT_EQ(manifest->file_bytes(), length);
      EXPECT_EQ(manifest->file_crc32c(), Crc32c(source));
      EXPECT_EQ(manifest->workers(), above.front().workers);
      EXPECT_EQ(manifest->sru_bytes(), above.size() == 1 ? 40u : 120u);
      EXPECT_EQ(ReadBack(*manifest, 0), source);
      EXPECT_EQ(ReadBack(*manifest, 1), source);
      EXPECT_THAT(Problems(), IsEmpty());
      std::filesystem::remove_all(Out());
    }
  }
}

TEST_F(TreeFileTest, AnSruOfTheTopIsADataBlockOfTheLevelBelow) {
  const std::string source = testing::SourceBytes(100);
  const auto manifest = testing::StripeBytes(source, Spec({{2, 1}}, 2, 10));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  // SRUs have 20 bytes: 0, 2, 4 are at mla-0000, 1 and 3 at mla-0001.
  const std::string stripe = source.substr(20, 20) + source.substr(60, 20);
  const auto files = testing::Tree(Out());
  EXPECT_EQ(files.at("mla-0001/worker-0000/data.w0001.s0/stripe-0"), stripe.substr(0, 10) + stripe.substr(20, 10));
  EXPECT_EQ(files.at("mla-0001/worker-0001/data.w0001.s0/stripe-0"), stripe.substr(10, 10) + stripe.substr(30, 10));
  const auto lower = DecodeManifest(files.at("mla-0001/worker-0000/data.w0001.s0/manifest"));
  ASSERT_TRUE(lower.ok()) << lower.status();
  EXPECT_EQ(lower->file_crc32c(), Crc32c(stripe));
  EXPECT_EQ(lower->upper_manifest_crc32c(), ManifestCrc32c(*manifest));
  EXPECT_EQ(manifest->upper_manifest_crc32c(), 0u);
  std::string stored;
  const auto store = TreeStore::Open(Out()).value();
  ASSERT_TRUE(store->ReadManifest(1, "data", 0, 1000, &stored).ok());
  EXPECT_EQ(stored, EncodeManifest(*manifest));
}

// It is one SRU at the top level, but each of its stripes has more than 3 SRUs.
TEST_F(TreeFileTest, AFileOfTooManySrusForALowerLevelIsRefusedBeforeItIsWritten) {
  constexpr uint32_t kSruBytes = 1 << 20;
  StripeSpec spec = Spec({{2, 1}}, 8, kSruBytes);
  spec.max_srus = 3;
  int written = 0;
  spec.on_progress = [&](uint64_t) { ++written; };
  const auto refused = testing::StripeBytes(std::string(8 * kSruBytes, 'x'), spec);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kOutOfRange) << refused.status();
  EXPECT_EQ(written, 0);
  EXPECT_TRUE(testing::StripeBytes(std::string(3 * kSruBytes, 'x'), spec).ok());
}

TEST_F(TreeFileTest, VerifyTellsAFlippedByteAtEveryLevel) {
  ASSERT_TRUE(testing::StripeBytes(testing::SourceBytes(100), Spec({{2, 1}}, 2, 10)).ok());
  testing::FlipByte(Out() / "mla-0001/worker-0001/data.w0001.s0/stripe-0", 12);
  const auto problems = Problems();
  EXPECT_EQ(problems.size(), 2u);
  EXPECT_THAT(problems, Contains(HasSubstr("mla-0001/worker-0001/data.w0001.s0: SRU 3 in stripe-0: CRC32C expected")));
  EXPECT_THAT(problems, Contains(HasSubstr("mla-0001/data: SRU 3 in stripe-0: CRC32C expected")));
}

TEST_F(TreeFileTest, VerifyTellsWhatIsNotThere) {
  ASSERT_TRUE(testing::StripeBytes(testing::SourceBytes(100), Spec({{2, 1}}, 1, 10)).ok());
  std::filesystem::remove_all(Out() / "mla-0000/worker-0000/data.w0000.manifest");
  EXPECT_THAT(Problems(), Contains(HasSubstr("mla-0000/data: no file data.w0000.manifest at the level below")));
  std::filesystem::remove_all(Out() / "mla-0000");
  EXPECT_THAT(Problems(), Contains("mla-0000/data: the folder of this worker is missing"));
}

TEST_F(TreeFileTest, ReplacesOnlyWhenToldAndOnlyTheSameShape) {
  ASSERT_TRUE(testing::StripeBytes("old", Spec({{2, 1}}, 2, 10)).ok());
  const auto before = testing::Tree(Out());
  StripeSpec spec = Spec({{2, 1}}, 2, 10);
  EXPECT_EQ(testing::StripeBytes("new", spec).status().code(), absl::StatusCode::kAlreadyExists);
  spec.levels_above = {{1, 1}};
  spec.replace = true;
  const auto other = testing::StripeBytes("new", spec);
  EXPECT_EQ(other.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.status().message()), HasSubstr("belongs to an older \"data\" of another shape"));
  EXPECT_EQ(testing::Tree(Out()), before);
  spec.levels_above = {{2, 1}};
  const auto manifest = testing::StripeBytes("new", spec);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(ReadBack(*manifest, 0), "new");
  EXPECT_THAT(Problems(), IsEmpty());
}

TEST_F(TreeFileTest, ARunThatIsStoppedLeavesNothing) {
  const FileDescriptor stop(eventfd(1, 0));
  StripeSpec spec = Spec({{2, 2}, {2, 1}}, 2, 10);
  spec.stop_fd = stop.get();
  EXPECT_EQ(testing::StripeBytes(testing::SourceBytes(1000), spec).status().code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(std::filesystem::exists(Out()));
}

TEST_F(TreeFileTest, AFileThatTurnsOutTooLongLeavesTheOldOne) {
  ASSERT_TRUE(testing::StripeBytes("old", Spec({{2, 1}}, 1, 10)).ok());
  const auto before = testing::Tree(Out());
  StripeSpec spec = Spec({{2, 1}}, 1, 10);
  spec.max_srus = 3;
  spec.replace = true;
  EXPECT_EQ(testing::StripeBytes(testing::SourceBytes(31), spec).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(testing::Tree(Out()), before);
}

TEST_F(TreeFileTest, RefusesWhatIsOutOfBounds) {
  const auto refused = [](const StripeSpec& spec, const std::string& message) {
    const auto result = testing::StripeBytes("x", spec);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << result.status();
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(message));
  };
  refused(Spec({{0, 1}}, 2, 10), "workers is 0");
  refused(Spec({{2, 3}}, 2, 10), "replicas is 3");
  refused(Spec({{2, 1}}, 65, 1 << 20), "sru_bytes times the workers of the levels below is 68157440");
  refused(Spec({{60000, 1}, {60000, 1}}, 1, 1), "workers * replicas");
  StripeSpec spec = Spec({{2, 1}}, 2, 10);
  spec.file = std::string(kMaxFileNameBytes, 'a');
  refused(spec, "at a level below; at most 200");
  EXPECT_FALSE(std::filesystem::exists(Out()));
}

TEST_F(TreeFileTest, OneRunAtATimeWorksInAFolder) {
  std::filesystem::create_directories(Out() / "mla-0001");
  const auto folder = OpenAt(AT_FDCWD, Out() / "mla-0001", O_RDONLY | O_DIRECTORY);
  ASSERT_TRUE(folder.ok());
  ASSERT_EQ(flock(folder->get(), LOCK_EX), 0);
  const auto result = testing::StripeBytes("x", Spec({{2, 1}}, 2, 10));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("mla-0001; try again"));
}

}  // namespace
}  // namespace sluice
