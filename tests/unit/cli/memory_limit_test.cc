#include "lib/cli/memory_limit.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

class MemoryLimitTest : public ::testing::Test {
 protected:
  MemoryLimitTest() : root_(absl::StrCat(::testing::TempDir(), "sluice-memory-limit-", getpid())) {}
  ~MemoryLimitTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }

  const std::string root_;
};

TEST_F(MemoryLimitTest, IsTheLeastOfTheGroupAndThoseAboveIt) {
  Write("/proc/self/cgroup", "0::/pods/a/proxy");
  EXPECT_FALSE(MemoryLimit(root_).has_value()) << "no file";
  Write("/sys/fs/cgroup/pods/a/proxy/memory.max", "max");
  EXPECT_FALSE(MemoryLimit(root_).has_value());
  Write("/sys/fs/cgroup/pods/memory.max", "536870912");
  EXPECT_EQ(MemoryLimit(root_), 512 << 20);
  Write("/sys/fs/cgroup/pods/a/proxy/memory.max", "268435456");
  EXPECT_EQ(MemoryLimit(root_), 256 << 20);
}

TEST_F(MemoryLimitTest, IsThatOfTheContainer) {
  Write("/proc/self/cgroup", "0::/");
  Write("/sys/fs/cgroup/memory.max", "268435456");
  EXPECT_EQ(MemoryLimit(root_), 256 << 20);
}

TEST_F(MemoryLimitTest, ReadsTheFirstVersionOfCgroups) {
  Write("/proc/self/cgroup", "8:pids:/x\n4:memory,hugetlb:/x/y\n0::/x/y");
  Write("/sys/fs/cgroup/memory/x/y/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_FALSE(MemoryLimit(root_).has_value());
  Write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1073741824");
  EXPECT_EQ(MemoryLimit(root_), 1 << 30);
}

TEST_F(MemoryLimitTest, WhatCannotBeReadIsNoLimit) {
  EXPECT_FALSE(MemoryLimit(root_).has_value());
  Write("/proc/self/cgroup", "nonsense\n0::\n0::x\n0::/..");
  Write("/sys/fs/cgroup/memory.max", "-5");
  EXPECT_FALSE(MemoryLimit(root_).has_value());
}

}  // namespace
}  // namespace sluice
