#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "sluice/link_schedule.h"
#include "sluice/tls_options.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"

typedef struct ssl_ctx_st SSL_CTX;

namespace sluice {

// Certificates and settings for the TLS connections of one FanOut or BlockReader. It looks for changed files when a
// connection is made, at most once a second. If new files do not load, the last good ones stay in force. There is one
// for each set of options of a link. Thread-safe, since connections are made on several threads.
class TlsContext {
 public:
  using Clock = std::function<TimePoint()>;

  // Returns the errors of ValidateTls. `now` measures the time between two looks.
  static absl::StatusOr<std::shared_ptr<TlsContext>> Create(const TlsOptions& options,
                                                            Clock now = std::chrono::steady_clock::now);

  const TlsOptions& options() const { return options_; }
  // Returns the context for one connection that is made now.
  std::shared_ptr<SSL_CTX> Current() const;
  // OK if the files of the last look are in force. Otherwise the error of ValidateTls for which they were not taken;
  // the last good ones are in force, and each look tries again.
  absl::Status reload_status() const;

 private:
  // Identifies a version of a file: another version has another inode, size or time of its last change.
  struct FileVersion {
    uint64_t device = 0;
    uint64_t inode = 0;
    int64_t bytes = -1;  // -1 if there is no file
    int64_t changed_ns = 0;
    friend bool operator==(const FileVersion&, const FileVersion&) = default;
  };
  using FileVersions = std::array<FileVersion, 3>;

  TlsContext(TlsOptions options, Clock now) : options_(std::move(options)), now_(std::move(now)) {}

  static FileVersion VersionOf(const std::string& file);
  FileVersions Versions() const;
  absl::Status Reload() const;

  const TlsOptions options_;
  const Clock now_;
  mutable std::mutex mutex_;  // guards the members below
  mutable std::shared_ptr<SSL_CTX> current_;
  mutable FileVersions versions_;  // of the files that current_ was made of
  mutable TimePoint looked_;
  mutable absl::Status reload_status_;
};

}  // namespace sluice
