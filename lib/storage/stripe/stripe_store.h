#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/storage/stripe/file_descriptor.h"
#include "lib/storage/stripe/stripe_source.h"

namespace sluice {

// The most that one request asks for. Of a manifest it is one message: with its framing it fits gRPC's default of 4
// MiB.
inline constexpr uint32_t kMaxReadBytes = (4 << 20) - (64 << 10);

// The most bytes of an SRU in one message of ReadSru, and of one piece of it that a server holds.
inline constexpr uint32_t kSruMessageBytes = 64 << 10;

// The striped files under one folder, as a worker reads them. One a process. Thread-safe: it keeps no state but the
// open folder, so files that are striped while it runs are found. No name leads out of the folder: names are validated
// and no symbolic link below it is followed. Blocks for as long as the disk does.
class StripeStore final : public StripeSource {
 public:
  static absl::StatusOr<StripeStore> Open(const std::string& root);

  // What is there now, in ascending order.
  absl::StatusOr<std::vector<uint32_t>> Workers() const override;
  absl::StatusOr<std::vector<std::string>> Files(uint32_t worker) const override;
  std::string FolderName(uint32_t worker) const override;

  // Bytes [offset, offset + length) of a stripe. InvalidArgument: a bad name, length 0 or above kMaxReadBytes;
  // NotFound: no such worker, file or replica, or it is not a regular file; OutOfRange: the stripe ends before the
  // range does.
  absl::Status Read(uint32_t worker, std::string_view file, uint32_t replica, uint64_t offset, uint32_t length,
                    std::string* out) const override;
  // The errors of Read for such a range, as far as they can be told without reading it.
  absl::Status CheckRange(uint32_t worker, std::string_view file, uint32_t replica, uint64_t offset,
                          uint32_t length) const;
  absl::StatusOr<uint64_t> StripeBytes(uint32_t worker, std::string_view file, uint32_t replica) const override;

  // At most `length` bytes from `offset` of the manifest as stored; returns how many it has. The errors of Read;
  // OutOfRange only for an offset after its end.
  absl::StatusOr<uint64_t> ReadManifest(uint32_t worker, std::string_view file, uint64_t offset, uint32_t length,
                                        std::string* out) const override;

 private:
  explicit StripeStore(FileDescriptor root);
  absl::StatusOr<FileDescriptor> OpenWorker(uint32_t worker) const;
  struct RegularFile {
    FileDescriptor fd;
    uint64_t bytes = 0;
  };
  absl::StatusOr<RegularFile> OpenFile(uint32_t worker, std::string_view file, const std::string& part) const;

  // The stripe, where the range is within it.
  absl::StatusOr<RegularFile> OpenRange(uint32_t worker, std::string_view file, uint32_t replica, uint64_t offset,
                                        uint32_t length) const;

  FileDescriptor root_;
};

}  // namespace sluice
