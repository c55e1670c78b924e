#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice {

// The output: stdout, or a file that appears under its name only when it is complete. Not thread-safe.
class Output {
 public:
  // "-" or an empty path means stdout. Returns FailedPrecondition if the file cannot be created.
  static absl::StatusOr<std::unique_ptr<Output>> Open(const std::string& path);
  ~Output();  // removes a file that was not committed
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // Returns DataLoss if the disk is full, or if the reader of the pipe is gone.
  absl::Status Write(std::string_view data);
  absl::Status WriteZeros(uint64_t bytes);
  absl::Status Commit();

 private:
  Output(std::string path, std::string partial_path, std::FILE* file);

  const std::string path_;  // empty: stdout
  const std::string partial_path_;
  std::FILE* file_;
};

}  // namespace sluice
