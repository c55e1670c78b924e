#include "lib/cli/line_log.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr char kStandardOutput[] = "-";
// Linux says that a pipe can be written if it takes this many bytes at once (pipe(7)): such a write does not block.
constexpr size_t kChunkBytes = 4096;
constexpr std::chrono::seconds kLookEvery{1};
constexpr std::chrono::milliseconds kPollTime{100};

absl::StatusOr<int> OpenFile(const std::string& path) {
  if (path == kStandardOutput) return dup(STDOUT_FILENO);
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("open ", path));
  return fd;
}

// Whether the path leads to the open file.
bool IsAt(const std::string& path, int fd) {
  struct stat there {};
  struct stat here {};
  if (stat(path.c_str(), &there) != 0 || fstat(fd, &here) != 0) return false;
  return there.st_dev == here.st_dev && there.st_ino == here.st_ino;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LineLog>> LineLog::Open(const std::string& path,
                                                       std::function<void(int64_t lines)> on_lost) {
  const absl::StatusOr<int> fd = OpenFile(path);
  if (!fd.ok()) return fd.status();
  return std::unique_ptr<LineLog>(new LineLog(path, *fd, std::move(on_lost)));
}

LineLog::LineLog(std::string path, int fd, std::function<void(int64_t lines)> on_lost)
    : path_(std::move(path)), on_lost_(std::move(on_lost)), fd_(fd), thread_([this] { Run(); }) {}

LineLog::~LineLog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
  close(fd_);
}

void LineLog::Add(absl::string_view line) {
  int64_t lost = 0;
  {
    const std::lock_guard lock(mutex_);
    lost = std::exchange(unwritten_, 0);
    if (waiting_.size() + line.size() + 1 > kMaxWaitingBytes) {
      ++lost;
    } else {
      absl::StrAppend(&waiting_, line, "\n");
    }
  }
  changed_.notify_one();
  if (lost > 0) on_lost_(lost);
}

void LineLog::Run() {
  // A pipe whose reader is gone is an error of write(2) here, and must not end the process.
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  auto look_at = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const std::string lines = std::exchange(waiting_, {});
    lock.unlock();
    if (const auto now = std::chrono::steady_clock::now(); now >= look_at) {
      look_at = now + kLookEvery;
      OpenAgain();
    }
    const bool written = WriteAll(lines);
    lock.lock();
    if (!written) unwritten_ += std::count(lines.begin(), lines.end(), '\n');
  }
}

// Returns false if a part of the lines could not be written.
bool LineLog::WriteAll(const std::string& lines) {
  int waits = 0;  // since this process ends
  for (size_t at = 0; at < lines.size();) {
    pollfd ready{.fd = fd_, .events = POLLOUT, .revents = 0};
    if (poll(&ready, 1, kPollTime.count()) <= 0) {
      const std::lock_guard lock(mutex_);
      if (stopping_ && ++waits > kLookEvery / kPollTime) return false;
      continue;
    }
    // Whole lines: those of other processes may come between.
    size_t end = std::min(at + kChunkBytes, lines.size());
    if (const size_t last = lines.rfind('\n', end - 1); last != std::string::npos && last >= at) end = last + 1;
    const ssize_t written = write(fd_, lines.data() + at, end - at);
    if (written < 0 && errno != EAGAIN && errno != EINTR) return false;
    at += static_cast<size_t>(std::max<ssize_t>(written, 0));
  }
  return true;
}

void LineLog::OpenAgain() {
  if (path_ == kStandardOutput || IsAt(path_, fd_)) return;
  const absl::StatusOr<int> fd = OpenFile(path_);
  if (!fd.ok()) return;
  close(std::exchange(fd_, *fd));
}

}  // namespace sluice
