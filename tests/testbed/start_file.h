#pragma once

#include <filesystem>
#include <iostream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/wait_until.h"

namespace sluice::testbed {

// For a program that has warmed up: says "warm" on stderr, and waits until its parent has made the file. Without a path
// it does neither. Returns DeadlineExceeded after ten minutes, since the parent has then failed.
inline absl::Status AwaitStartFile(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  std::cerr << "warm" << std::endl;
  constexpr absl::Duration kPatience = absl::Minutes(10);
  if (WaitUntil([&path] { return std::filesystem::exists(path); }, kPatience)) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("--start_file ", path, " was not made within ", absl::FormatDuration(kPatience)));
}

}  // namespace sluice::testbed
