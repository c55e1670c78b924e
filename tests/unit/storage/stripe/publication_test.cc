#include "lib/storage/stripe/publication.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/storage/stripe/stripe_verifier.h"
#include "lib/storage/stripe/stripe_writer.h"
#include "tests/has_code.h"
#include "tests/unit/storage/stripe/striped_folder.h"

namespace sluice {
namespace {

using testing::HasCode;
using ::testing::HasSubstr;

// Replaces a file in a process that is killed after some step, in each shape.
class PublicationTest : public ::testing::TestWithParam<std::vector<StripeLevel>> {
 protected:
  StripeSpec Spec(const std::filesystem::path& root, uint32_t workers) {
    return {.root = root,
            .file = "data",
            .workers = workers,
            .sru_bytes = 3,
            .replicas = 2,
            .levels_above = GetParam(),
            .replace = true};
  }
  // In a tree, only a file of the same shape can be replaced.
  uint32_t NewWorkers() const { return GetParam().empty() ? 3 : 4; }

  // Returns whether the process was killed, after this many steps.
  bool ReplaceAndDie(int steps) {
    const pid_t child = fork();
    if (child == 0) {
      StripeSpec spec = Spec(Out(), NewWorkers());
      spec.on_published = [&steps] {
        if (--steps == 0) _exit(7);
      };
      _exit(testing::StripeBytes(new_, spec).ok() ? 0 : 1);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_NE(WEXITSTATUS(status), 1);
    return WEXITSTATUS(status) == 7;
  }

  std::filesystem::path Out() const { return folder_.path() / "out"; }
  uint64_t Problems() const { return VerifyStripes(Out(), {}).value().problems; }

  const std::string old_ = testing::SourceBytes(200);
  const std::string new_ = testing::SourceBytes(231);
  testing::TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Shapes, PublicationTest,
                         ::testing::Values(std::vector<StripeLevel>(),
                                           std::vector<StripeLevel>{{.workers = 2, .replicas = 1}}));

TEST_P(PublicationTest, AKilledRunIsCompletedAfterEachStep) {
  ASSERT_TRUE(testing::StripeBytes(old_, Spec(folder_.path() / "whole", 4)).ok());
  ASSERT_TRUE(testing::StripeBytes(new_, Spec(folder_.path() / "whole", NewWorkers())).ok());
  const auto whole = testing::Tree(folder_.path() / "whole");
  int mixtures = 0;
  int steps = 1;
  for (;; ++steps) {
    std::filesystem::remove_all(Out());
    ASSERT_TRUE(testing::StripeBytes(old_, Spec(Out(), 4)).ok());
    if (!ReplaceAndDie(steps)) break;
    mixtures += Problems() > 0 ? 1 : 0;
    const absl::Status recovered = RecoverStripes(Out());
    ASSERT_TRUE(recovered.ok()) << steps << " steps: " << recovered;
    EXPECT_EQ(testing::Tree(Out()), whole) << steps << " steps";
    EXPECT_EQ(Problems(), 0u);
    EXPECT_TRUE(RecoverStripes(Out()).ok()) << "nothing is left to do";
  }
  EXPECT_GT(steps, 4);
  EXPECT_GT(mixtures, 1) << "without it, neither file could be read";
  EXPECT_EQ(testing::Tree(Out()), whole) << "the run that was not killed";
}

TEST_P(PublicationTest, TheNextRunOfAnyFileCompletesIt) {
  ASSERT_TRUE(testing::StripeBytes(old_, Spec(Out(), 4)).ok());
  ASSERT_TRUE(ReplaceAndDie(2));
  EXPECT_GT(Problems(), 0u);
  StripeSpec other = Spec(Out(), 4);
  other.file = "other";
  ASSERT_TRUE(testing::StripeBytes("other", other).ok());
  EXPECT_EQ(Problems(), 0u);
}

TEST_P(PublicationTest, AnUndoneRunLeavesNoJournal) {
  ASSERT_TRUE(testing::StripeBytes(old_, Spec(Out(), 4)).ok());
  const auto before = testing::Tree(Out());
  StripeSpec spec = Spec(Out(), NewWorkers());
  const std::string first = GetParam().empty() ? "worker-0002/.new-data" : "mla-0001/worker-0002";
  spec.on_published = [&] {
    std::filesystem::remove_all(Out() / first / (GetParam().empty() ? "" : ".new-data.w0001.s0"));
  };
  const auto result = testing::StripeBytes(new_, spec);
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(testing::Tree(Out()), before);
}

TEST_P(PublicationTest, SaysWhatIsMissing) {
  ASSERT_TRUE(testing::StripeBytes(old_, Spec(Out(), 4)).ok());
  ASSERT_TRUE(ReplaceAndDie(1));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(Out())) {
    if (entry.path().filename().string().starts_with(".new-data")) std::filesystem::remove(entry.path() / "manifest");
  }
  const absl::Status lost = RecoverStripes(Out());
  EXPECT_THAT(lost, HasCode(absl::StatusCode::kDataLoss));
  EXPECT_THAT(std::string(lost.message()), HasSubstr("cannot be completed"));
}

TEST(RecoverStripesTest, RefusesWhatIsNoJournalOrNoFolder) {
  testing::TemporaryFolder folder;
  EXPECT_TRUE(RecoverStripes(folder.path()).ok());
  EXPECT_THAT(RecoverStripes(folder.path() / "none"), HasCode(absl::StatusCode::kNotFound));
  testing::WriteFile(folder.path() / ".publish-data", "worker-0000 ../data 7\n");
  EXPECT_THAT(RecoverStripes(folder.path()), HasCode(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace sluice
