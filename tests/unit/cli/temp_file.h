#pragma once

#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace sluice {

// Writes a file in the folder of the test framework, named after the running test so that tests can run at the same
// time.
inline std::string WriteTempFile(const std::string& text) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  std::string path = ::testing::TempDir() + "/" + test->test_suite_name() + "." + test->name() + ".json";
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

}  // namespace sluice
