#pragma once

#include <filesystem>
#include <iostream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/wait_until.h"

namespace sluice::testbed {

// Reports "warm" on stderr after a program's warm-up, and waits until its parent has created the file. Without a path
// it does neither. Returns DeadlineExceeded after ten minutes, because the parent must then have failed.
inline absl::Status AwaitStartFile(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  std::cerr << "warm" << std::endl;
  constexpr absl::Duration kPatience = absl::Minutes(10);
  if (WaitUntil([&path] { return std::filesystem::exists(path); }, kPatience)) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("--start_file ", path, " was not made within ", absl::FormatDuration(kPatience)));
}

}  // namespace sluice::testbed
