#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice {

// Appends lines to a file from a thread of its own, so that a disk or a pipe that blocks holds up nobody else. Lines
// that find no room are lost, and counted. There is one for each access log. Thread-safe.
class LineLog {
 public:
  static constexpr size_t kMaxWaitingBytes = 4u << 20;

  // `path` "-" is standard output. If the file has been moved or removed, as logrotate does, it is made again within a
  // second. `on_lost` receives the number of lines that were lost since the last call; it is called on the thread of
  // Add. Returns the error of open(2).
  static absl::StatusOr<std::unique_ptr<LineLog>> Open(const std::string& path,
                                                       std::function<void(int64_t lines)> on_lost);
  // Writes what waits, unless the other end of a pipe reads nothing for a second.
  ~LineLog();
  LineLog(const LineLog&) = delete;
  LineLog& operator=(const LineLog&) = delete;

  // Never blocks for the file. `line` has no end, and at most 2 KB.
  void Add(absl::string_view line);

 private:
  LineLog(std::string path, int fd, std::function<void(int64_t lines)> on_lost);
  void Run();
  bool WriteAll(const std::string& lines);
  void OpenAgain();

  const std::string path_;
  const std::function<void(int64_t lines)> on_lost_;
  int fd_;  // used by the thread
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string waiting_;  // lines with their ends
  bool stopping_ = false;
  int64_t unwritten_ = 0;  // lines that the thread could not write
  std::thread thread_;     // last: it uses the members above
};

}  // namespace sluice
