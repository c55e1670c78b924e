#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "sluice/time_point.h"
#include "sluice/tls_options.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/tls/server_tls.h"

typedef struct ssl_ctx_st SSL_CTX;

namespace sluice {

// TLS of the connections that a listener accepts: TLS 1.2 or newer, ALPN "h2", "http/1.1" or none, and a certificate
// from every client. A plain value.
struct ListenerTls {
  ServerTls files;  // all three are given
  // Accepted client names: the certificate must have one as a DNS name or URI of its subjectAltName. Names are compared
  // whole, DNS names without regard to case. Empty: every certificate that client_ca_file has signed is accepted.
  std::vector<std::string> client_names;

  friend bool operator==(const ListenerTls&, const ListenerTls&) = default;
};

// Returns InvalidArgument or NotFound that names the field, as in the config of sluice-proxy, and its value. Without
// `look_at_files` no file is read.
absl::Status ValidateListenerTls(const ListenerTls& options, bool look_at_files = true);
// Returns InvalidArgument that names the field if `name` cannot be the name of a client.
absl::Status ValidateClientName(absl::string_view field, const std::string& name);

// Certificates and settings for the TLS connections that one FanOut, BlockReader or proxy makes, or that the listeners
// of one proxy accept. It checks for changed files when a connection is made or checked, at most twice a second. If new
// files do not load, the last good files stay in force. There is one for each set of options of a link. Thread-safe,
// since connections are made on several threads.
class TlsContext {
 public:
  using Clock = std::function<TimePoint()>;

  // For connections to workers. Returns the errors of ValidateTls. `now` measures the time between two checks.
  static absl::StatusOr<std::shared_ptr<TlsContext>> Create(const TlsOptions& options,
                                                            Clock now = std::chrono::steady_clock::now);
  // For connections that are accepted. Returns the errors of ValidateListenerTls.
  static absl::StatusOr<std::shared_ptr<TlsContext>> CreateForListener(const ListenerTls& options,
                                                                       Clock now = std::chrono::steady_clock::now);

  const TlsOptions& options() const { return options_; }                          // of Create
  const std::vector<std::string>& client_names() const { return client_names_; }  // of CreateForListener
  // Returns the context for one connection that is made now.
  std::shared_ptr<SSL_CTX> Current() const;
  // OK if the files of the last check are in force. Otherwise the error of Create that rejected them; the last good
  // files stay in force, and each check tries again.
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
  using FileVersions = std::array<FileVersion, 4>;

  using Load = std::function<absl::StatusOr<std::shared_ptr<SSL_CTX>>()>;
  using Files = std::array<std::string, 4>;

  TlsContext(Load load, Files files, Clock now)
      : load_(std::move(load)), files_(std::move(files)), now_(std::move(now)) {}

  absl::Status Begin();
  static FileVersion VersionOf(const std::string& file);
  FileVersions Versions() const;
  absl::Status Reload() const;

  const Load load_;
  const Files files_;
  const Clock now_;
  TlsOptions options_;
  std::vector<std::string> client_names_;
  mutable std::mutex mutex_;  // guards the members below
  mutable std::shared_ptr<SSL_CTX> current_;
  mutable FileVersions versions_;  // versions of the files of current_
  mutable TimePoint looked_;
  mutable absl::Status reload_status_;
};

}  // namespace sluice
