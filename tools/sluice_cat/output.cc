#include "tools/sluice_cat/output.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace sluice {

absl::StatusOr<std::unique_ptr<Output>> Output::Open(const std::string& path) {
  if (path.empty() || path == "-") return std::unique_ptr<Output>(new Output("", "", stdout));
  std::string partial_path = absl::StrCat(path, ".partial-", getpid());
  std::FILE* file = std::fopen(partial_path.c_str(), "wbx");
  if (file == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
  }
  return std::unique_ptr<Output>(new Output(path, std::move(partial_path), file));
}

Output::Output(std::string path, std::string partial_path, std::FILE* file)
    : path_(std::move(path)), partial_path_(std::move(partial_path)), file_(file) {}

Output::~Output() {
  if (path_.empty() || file_ == nullptr) return;
  std::fclose(file_);
  std::remove(partial_path_.c_str());
}

absl::Status Output::Write(std::string_view data) {
  if (std::fwrite(data.data(), 1, data.size(), file_) == data.size()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("cannot write to ", path_.empty() ? "stdout" : path_, ": ", std::strerror(errno)));
}

absl::Status Output::WriteZeros(uint64_t bytes) {
  const std::string zeros(std::min<uint64_t>(bytes, 64 << 10), '\0');
  absl::Status status;
  while (status.ok() && bytes > 0) {
    const uint64_t now = std::min<uint64_t>(bytes, zeros.size());
    status = Write(std::string_view(zeros).substr(0, now));
    bytes -= now;
  }
  return status;
}

absl::Status Output::Commit() {
  const bool flushed = std::fflush(file_) == 0;
  if (path_.empty()) return flushed ? absl::OkStatus() : absl::DataLossError("cannot write to stdout");
  const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  if (flushed && closed && std::rename(partial_path_.c_str(), path_.c_str()) == 0) return absl::OkStatus();
  const std::string reason = std::strerror(errno);
  std::remove(partial_path_.c_str());
  return absl::DataLossError(absl::StrCat("cannot write ", path_, ": ", reason));
}

}  // namespace sluice
