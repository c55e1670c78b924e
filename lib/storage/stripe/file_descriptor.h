#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice {

// Owns an open file. A move-only value.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    FileDescriptor closed(std::exchange(fd_, other.Release()));
    return *this;
  }
  ~FileDescriptor();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }  // the caller must close it

 private:
  int fd_ = -1;
};

// Converts errno to a status: "<what>: No space left on device". An error of a disk (EIO), or of what it stores, is
// DataLoss.
absl::Status ErrnoStatus(int error_number, std::string_view what);

// Calls open(2) relative to a folder (AT_FDCWD: the working directory), with close-on-exec.
absl::StatusOr<FileDescriptor> OpenAt(int folder, const std::string& path, int flags, unsigned mode = 0);

// Calls write(2) until all data is written. `what` names the file in the error.
absl::Status WriteAll(int fd, std::string_view data, std::string_view what);

}  // namespace sluice
