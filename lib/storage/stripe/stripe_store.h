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

// The maximum size of one request. A manifest part of this size is one message and, with its framing, fits gRPC's
// default limit of 4 MiB.
inline constexpr uint32_t kMaxReadBytes = (4 << 20) - (64 << 10);

// The maximum number of bytes of an SRU in one message of ReadSru, and in one piece that a server holds.
inline constexpr uint32_t kSruMessageBytes = 64 << 10;

// The striped files under one folder, as a worker reads them. There is one for each process. Thread-safe: its only
// state is the open folder, so it also finds files that are striped while it runs. No name leads out of the folder: it
// validates names and follows no symbolic link below the folder. Calls block while the disk reads.
class StripeStore : public StripeSource {
 public:
  static absl::StatusOr<StripeStore> Open(const std::string& root);

  // Return the current contents, in ascending order.
  absl::StatusOr<std::vector<uint32_t>> Workers() const override;
  absl::StatusOr<std::vector<std::string>> Files(uint32_t worker) const override;
  std::string FolderName(uint32_t worker) const override;
  // Returns the error of the first folder that cannot be opened: the root, which may also have
  // been removed, or the folder of a worker.
  absl::Status CheckReadable() const;

  // Reads bytes [offset, offset + length) of a stripe. Returns InvalidArgument for a bad name, and for a length of 0 or
  // above kMaxReadBytes. Returns NotFound if the worker, file or replica does not exist or is not a regular file.
  // Returns OutOfRange if the stripe ends before the range, and DataLoss if the disk, or its file system, cannot read
  // it (EIO).
  absl::Status Read(uint32_t worker, std::string_view file, uint32_t replica, uint64_t offset, uint32_t length,
                    std::string* out) const override;
  // Returns the errors of Read for this range, as far as they show without reading it. The range may be as long as the
  // largest SRU, kMaxSruBytes: it is read in pieces.
  virtual absl::Status CheckRange(uint32_t worker, std::string_view file, uint32_t replica, uint64_t offset,
                                  uint32_t length) const;
  // Whether ReadCached of this worker never waits for a disk: its file system is one of those that promise it.
  virtual bool CanReadCached(uint32_t worker) const;
  // Reads as Read, but only from the memory of the kernel. Returns false if that lacks some of it, and for each error
  // of Read; then `out` is undefined. The stripe must have `check_length` bytes from the offset, at least `length`.
  virtual bool ReadCached(uint32_t worker, std::string_view file, uint32_t replica, uint64_t offset, uint32_t length,
                          uint32_t check_length, std::string* out) const;
  absl::StatusOr<uint64_t> StripeBytes(uint32_t worker, std::string_view file, uint32_t replica) const override;

  // Reads at most `length` bytes of the stored manifest from `offset`; returns the manifest's total size. Returns the
  // errors of Read, but OutOfRange only if `offset` is beyond the end.
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

  // Opens the stripe, if the range is within it.
  absl::StatusOr<RegularFile> OpenRange(uint32_t worker, std::string_view file, uint32_t replica, uint64_t offset,
                                        uint32_t length) const;

  FileDescriptor root_;
};

}  // namespace sluice
