#include "lib/storage/blocks/manifest_search.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::UnorderedElementsAreArray;

bool NoneIsBad(size_t /*worker*/) {
  return false;
}

std::vector<size_t> AllOf(ManifestSearch& search, const std::function<bool(size_t)>& bad = NoneIsBad) {
  std::vector<size_t> asked;
  for (auto worker = search.Next(bad); worker.has_value(); worker = search.Next(bad)) asked.push_back(*worker);
  return asked;
}

// Returns the workers searched until one has the file. The first `holders` workers have it, and the others report that
// they do not.
std::vector<size_t> AsksUntilFound(std::string_view file, size_t workers, size_t holders) {
  ManifestSearch search(file, workers);
  std::vector<size_t> asked;
  for (auto worker = search.Next(NoneIsBad); worker.has_value(); worker = search.Next(NoneIsBad)) {
    asked.push_back(*worker);
    if (*worker < holders) return asked;
    search.OnNotFound(*worker);
  }
  return asked;
}

TEST(ManifestSearchTest, EachWorkerIsChosenOnce) {
  for (const size_t workers : {0, 1, 2, 3, 7, 64}) {
    for (int i = 0; i < 50; ++i) {
      ManifestSearch search(absl::StrCat("file-", i), workers);
      std::vector<size_t> all;
      for (size_t worker = 0; worker < workers; ++worker) all.push_back(worker);
      EXPECT_THAT(AllOf(search), UnorderedElementsAreArray(all));
    }
  }
}

TEST(ManifestSearchTest, FilesBeginAtAllWorkersAlike) {
  constexpr size_t kWorkers = 16;
  constexpr int kFiles = 16'000;
  std::vector<int> first(kWorkers);
  for (int i = 0; i < kFiles; ++i) {
    ++first[*ManifestSearch(absl::StrCat("photos/", i, ".raw"), kWorkers).Next(NoneIsBad)];
  }
  for (const int files : first) EXPECT_NEAR(files, kFiles / kWorkers, kFiles / kWorkers / 5);
}

TEST(ManifestSearchTest, AFileBeginsAtOneWorkerAtAllReaders) {
  EXPECT_EQ(ManifestSearch("data", 1000).Next(NoneIsBad), ManifestSearch("data", 1000).Next(NoneIsBad));
}

// Workers that were added later do not have older files.
TEST(ManifestSearchTest, AFileOnAFewWorkersIsFoundByHalves) {
  for (int i = 0; i < 200; ++i) {
    const std::string file = absl::StrCat("file-", i);
    EXPECT_EQ(AsksUntilFound(file, 1024, 1024).size(), 1u);
    EXPECT_LE(AsksUntilFound(file, 1024, 512).size(), 2u);
    EXPECT_LE(AsksUntilFound(file, 1024, 8).size(), 8u);
    EXPECT_LE(AsksUntilFound(file, 1024, 1).size(), 11u);
    EXPECT_EQ(AsksUntilFound(file, 1024, 1).back(), 0u);
  }
}

TEST(ManifestSearchTest, AFileThatNoWorkerHasTakesAFewAsks) {
  for (int i = 0; i < 200; ++i) {
    EXPECT_LE(AsksUntilFound(absl::StrCat("file-", i), 1024, 0).size(), 13u);
    EXPECT_LE(AsksUntilFound(absl::StrCat("file-", i), 4, 0).size(), 4u);
  }
}

TEST(ManifestSearchTest, TwoWorkersThatHaveLostTheirDisksHideNothing) {
  for (int i = 0; i < 200; ++i) {
    ManifestSearch search(absl::StrCat("file-", i), 64);
    auto worker = search.Next(NoneIsBad);
    for (; worker.has_value() && worker != 2u; worker = search.Next(NoneIsBad)) search.OnNotFound(*worker);
    EXPECT_EQ(worker, 2u) << "the file lies on the workers 0 to 2, and the first two have lost it";
  }
}

// Only the last worker may have the file.
TEST(ManifestSearchTest, WorkersThatFailArePassedToTheLast) {
  for (int i = 0; i < 200; ++i) {
    ManifestSearch search(absl::StrCat("file-", i), 256);
    auto worker = search.Next(NoneIsBad);
    for (; worker.has_value() && worker != 40u; worker = search.Next(NoneIsBad)) {
      if (*worker > 40) search.OnNotFound(*worker);
    }
    EXPECT_EQ(worker, 40u) << "a rack of 40 workers fails, and the file lies on 41";
  }
}

TEST(ManifestSearchTest, BadWorkersComeLast) {
  for (int i = 0; i < 50; ++i) {
    ManifestSearch search(absl::StrCat("file-", i), 8);
    const auto bad = [](size_t worker) { return worker == 0 || worker == 5; };
    const std::vector<size_t> asked = AllOf(search, bad);
    ASSERT_EQ(asked.size(), 8u);
    EXPECT_TRUE(std::none_of(asked.begin(), asked.begin() + 6, bad));
  }
}

TEST(ManifestSearchTest, ABadWorkerIsNotAskedForAFileThatLiesBeforeIt) {
  ManifestSearch search("data", 8);
  const std::vector<size_t> asked = AllOf(search, [&](size_t worker) {
    if (worker < 3) search.OnNotFound(worker);
    return worker == 7;
  });
  EXPECT_EQ(std::count(asked.begin(), asked.end(), 7u), 0);
}

}  // namespace
}  // namespace sluice
