#include "lib/storage/stripe/stripe_name.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

TEST(ValidateFileNameTest, TakesOnePathComponent) {
  for (const std::string& name : {std::string("a"), std::string("photos-2024.tar.gz"), std::string("_x"),
                                  std::string("a..b"), std::string(kMaxFileNameBytes, 'a')})
    EXPECT_TRUE(ValidateFileName(name).ok()) << name;
}

TEST(ValidateFileNameTest, SaysWhatIsWrong) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "empty"},
      {".", "begins with '.'"},
      {"..", "begins with '.'"},
      {".new-a", "begins with '.'"},
      {"-rf", "begins with '-'"},
      {"../x", "has a '/'"},
      {"a/b", "has a '/'"},
      {"/etc/passwd", "has a '/'"},
      {"a\\b", "outside of"},
      {std::string("a\0b", 3), "\"a\\000b\" has a character outside of"},
      {"a b", "outside of"},
      {"caf\xc3\xa9", "outside of"},
      {std::string(kMaxFileNameBytes + 1, 'a'), "has 201 bytes; at most 200"},
      {std::string(1 << 20, '/'), "has 1048576 bytes"},
  };
  for (const auto& [name, reason] : cases) {
    const absl::Status status = ValidateFileName(name);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name.substr(0, 40);
    EXPECT_THAT(std::string(status.message()), HasSubstr(reason));
    EXPECT_LT(status.message().size(), 1000u);
  }
}

TEST(WorkerFolderNameTest, ComesBackAsItsWorker) {
  EXPECT_EQ(WorkerFolderName(3), "worker-0003");
  for (const uint32_t worker : {0u, 3u, 9999u, 10000u, 65535u})
    EXPECT_EQ(ParseWorkerFolderName(WorkerFolderName(worker)), worker);
}

TEST(WorkerFolderNameTest, HasOneSpelling) {
  for (const char* name : {"worker-3", "worker-00003", "worker-", "worker-+003", "worker--003", "worker-65536", "x",
                           "worker-0003 ", "Worker-0003", "worker-99999999999"})
    EXPECT_EQ(ParseWorkerFolderName(name), std::nullopt) << name;
}

TEST(StripeFileNameTest, IsTheReplica) {
  EXPECT_EQ(StripeFileName(12), "stripe-12");
}

TEST(MidLevelFolderNameTest, ComesBackAsItsAggregatorAndHasOneSpelling) {
  EXPECT_EQ(MidLevelFolderName(3), "mla-0003");
  for (const uint32_t aggregator : {0u, 3u, 65535u})
    EXPECT_EQ(ParseMidLevelFolderName(MidLevelFolderName(aggregator)), aggregator);
  for (const char* name : {"mla-3", "mla-", "worker-0003", "mla-65536"})
    EXPECT_EQ(ParseMidLevelFolderName(name), std::nullopt) << name;
}

TEST(LowerNameTest, ComesBackAsFileWorkerAndReplica) {
  EXPECT_EQ(LowerStripeName("data", 3, 1).value(), "data.w0003.s1");
  EXPECT_EQ(LowerManifestName("data", 3).value(), "data.w0003.manifest");
  for (const std::string file : {"data", "a.b", "data.w0001.s0", "data.w0001.manifest"}) {
    for (const uint32_t worker : {0u, 7u, 65535u}) {
      const auto stripe = ParseLowerName(LowerStripeName(file, worker, 2).value());
      ASSERT_TRUE(stripe.has_value());
      EXPECT_EQ(stripe->file, file);
      EXPECT_EQ(stripe->worker, worker);
      EXPECT_EQ(stripe->replica, 2u);
      const auto manifest = ParseLowerName(LowerManifestName(file, worker).value());
      ASSERT_TRUE(manifest.has_value());
      EXPECT_EQ(manifest->file, file);
      EXPECT_EQ(manifest->replica, std::nullopt);
    }
  }
}

TEST(LowerNameTest, HasOneSpelling) {
  for (const char* name : {"data", "data.s0", "data.w3.s0", "data.w0003.s00", "data.w0003.s+0", "data.w0003.x",
                           "data.0003.s0", "data.w0003.", "w0003.s0", ""})
    EXPECT_EQ(ParseLowerName(name), std::nullopt) << name;
}

TEST(LowerNameTest, IsRefusedWhereItIsTooLong) {
  const std::string longest(kMaxFileNameBytes - 9, 'a');
  EXPECT_TRUE(LowerStripeName(longest, 3, 0).ok());
  const auto status = LowerManifestName(longest, 3).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has 206 bytes at a level below; at most 200"));
}

TEST(LowerNameTest, TellsThePartsOfAFileAtAnyDepth) {
  EXPECT_TRUE(IsPartOfFile("data.w0003.s0", "data"));
  EXPECT_TRUE(IsPartOfFile("data.w0003.s0.w0001.manifest", "data"));
  EXPECT_FALSE(IsPartOfFile("data", "data"));
  EXPECT_FALSE(IsPartOfFile("data2.w0003.s0", "data"));
  EXPECT_FALSE(IsPartOfFile("data.old.w0003.s0", "data"));
}

}  // namespace
}  // namespace sluice
