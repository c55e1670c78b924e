#include "lib/storage/stripe/file_descriptor.h"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/string_view.h"

namespace sluice {

FileDescriptor::~FileDescriptor() {
  if (valid()) close(fd_);
}

absl::Status ErrnoStatus(int error_number, std::string_view what) {
  const absl::Status status = absl::ErrnoToStatus(error_number, absl::string_view(what.data(), what.size()));
  const bool lost = error_number == EIO || error_number == EBADMSG || error_number == EUCLEAN;
  return lost ? absl::DataLossError(status.message()) : status;
}

absl::StatusOr<FileDescriptor> OpenAt(int folder, const std::string& path, int flags, unsigned mode) {
  int fd = -1;
  do {
    fd = openat(folder, path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return ErrnoStatus(errno, path);
  return FileDescriptor(fd);
}

absl::Status WriteAll(int fd, std::string_view data, std::string_view what) {
  while (!data.empty()) {
    const ssize_t written = write(fd, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus(errno, what);
    data.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace sluice
