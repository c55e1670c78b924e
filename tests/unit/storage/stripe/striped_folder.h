#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lib/storage/stripe/file_descriptor.h"
#include "lib/storage/stripe/stripe_writer.h"

// Shared code of the tests of striped files: a temporary folder, files in it, and bytes to stripe.
namespace sluice::testing {

// A new folder, which is removed with this object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = ::testing::TempDir() + "/sluice-XXXXXX";
    path_ = mkdtemp(pattern.data()) == nullptr ? "" : pattern;
    EXPECT_FALSE(path_.empty());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

inline void WriteFile(const std::filesystem::path& path, const std::string& data) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << data;
  EXPECT_TRUE(file.flush()) << path;
}

inline void FlipByte(const std::filesystem::path& path, size_t offset) {
  std::string data = ReadFile(path);
  data.at(offset) ^= 1;
  WriteFile(path, data);
}

// Returns the same bytes for the same length. They have no pattern that could hide a misplaced SRU.
inline std::string SourceBytes(size_t length) {
  std::mt19937 random(static_cast<unsigned>(length));
  std::string bytes(length, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// Returns every file and folder below `root`, including hidden ones; files with their content.
inline std::map<std::string, std::string> Tree(const std::filesystem::path& root) {
  std::map<std::string, std::string> tree;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const std::string name = std::filesystem::relative(entry.path(), root);
    tree[name] = entry.is_regular_file() ? ReadFile(entry.path()) : "";
  }
  return tree;
}

// Stripes `data` through a file; `spec` needs a root, a name and a shape.
inline absl::StatusOr<v1::Manifest> StripeBytes(const std::string& data, const StripeSpec& spec) {
  TemporaryFolder folder;
  WriteFile(folder.path() / "input", data);
  const auto input = OpenAt(AT_FDCWD, folder.path() / "input", O_RDONLY);
  if (!input.ok()) return input.status();
  return StripeFile(input->get(), spec);
}

}  // namespace sluice::testing
