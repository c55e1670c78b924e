#include "lib/cli/line_log.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/eventually.h"

namespace sluice {
namespace {

class LineLogTest : public ::testing::Test {
 protected:
  LineLogTest() : path_(absl::StrCat(::testing::TempDir(), "sluice-line-log-", getpid())) { unlink(path_.c_str()); }
  ~LineLogTest() override { unlink(path_.c_str()); }

  std::unique_ptr<LineLog> Open() {
    auto log = LineLog::Open(path_, [this](int64_t lines) { lost_ += lines; });
    EXPECT_TRUE(log.ok()) << log.status();
    return *std::move(log);
  }
  static std::string Read(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const std::string path_;
  int64_t lost_ = 0;
};

TEST_F(LineLogTest, WritesAllLinesInTheirOrder) {
  std::string expected;
  {
    const auto log = Open();
    for (int i = 0; i < 1000; ++i) {
      log->Add(absl::StrCat("line ", i));
      absl::StrAppend(&expected, "line ", i, "\n");
    }
  }
  EXPECT_EQ(Read(path_), expected);
  Open()->Add("more");
  EXPECT_EQ(Read(path_), expected + "more\n") << "a file that is there is continued";
  EXPECT_EQ(lost_, 0);
}

TEST_F(LineLogTest, MakesItsFileAgainAfterItWasMoved) {
  const auto log = Open();
  log->Add("before");
  EXPECT_TRUE(testing::Eventually([&] { return Read(path_) == "before\n"; }));
  const std::string moved = path_ + ".1";
  std::filesystem::rename(path_, moved);
  EXPECT_TRUE(testing::Eventually([&] {
    log->Add("after");
    return Read(path_).ends_with("after\n");
  }));
  unlink(moved.c_str());
}

// A reader that is stopped holds up nobody, neither while the program runs nor at its end.
TEST_F(LineLogTest, APipeThatNobodyReadsLosesLinesAndDoesNotBlock) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const int reader = open(path_.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  const auto began = std::chrono::steady_clock::now();
  {
    const auto log = Open();
    const std::string line(1023, 'x');
    for (int i = 0; i < 10'000; ++i) log->Add(line);
    EXPECT_GE(lost_, 10'000 - 2 * static_cast<int64_t>(LineLog::kMaxWaitingBytes >> 10) - 64);
    EXPECT_LT(lost_, 10'000);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
  close(reader);
}

TEST_F(LineLogTest, APipeWhoseReaderIsGoneLosesLinesAndNotTheProcess) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const int reader = open(path_.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  const auto log = Open();
  close(reader);
  const auto loses = [&] {
    log->Add("line");
    return lost_ > 0;
  };
  EXPECT_TRUE(testing::Eventually(loses));
}

TEST_F(LineLogTest, ReportsAFileThatCannotBeOpened) {
  const auto log = LineLog::Open("/no/such/folder/access.log", [](int64_t) {});
  EXPECT_EQ(log.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(log.status().message()).find("/no/such/folder/access.log"), std::string::npos);
}

}  // namespace
}  // namespace sluice
