#include "lib/stripe/stripe_name.h"

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

}  // namespace
}  // namespace sluice
