#include "lib/storage/stripe/stripe_store.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "lib/storage/stripe/manifest.h"
#include "lib/storage/stripe/stripe_name.h"

namespace sluice {
namespace {

constexpr long kXfsMagic = 0x58465342;  // not in linux/magic.h
constexpr int kWorkerFolderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;

// Opens one path component below `folder`. A symbolic link, or a file of another type, counts as missing. Errors leave
// out the path: it concerns the operator, not the client.
absl::StatusOr<FileDescriptor> OpenComponent(int folder, const std::string& name, int flags, absl::string_view what) {
  FileDescriptor opened(openat(folder, name.c_str(), flags | O_CLOEXEC));
  if (opened.valid()) return opened;
  if (errno == ENOENT) return absl::NotFoundError(absl::StrCat("no ", what, " here"));
  if (errno == ELOOP || errno == ENOTDIR)
    return absl::NotFoundError(absl::StrCat("no ", what, " here: it is a link or of another type"));
  return ErrnoStatus(errno, absl::StrCat("cannot open ", what));
}

absl::Status CheckLength(uint32_t length, uint32_t most) {
  if (length >= 1 && length <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("length is ", length, "; it must be 1 to ", most));
}

absl::Status ReadAt(int fd, uint64_t offset, uint32_t length, std::string* out) {
  out->resize(length);
  size_t done = 0;
  while (done < length) {
    const ssize_t got = pread(fd, out->data() + done, length - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "read of a stripe");
    if (got == 0) return absl::OutOfRangeError("the file became shorter while it was read");
    done += static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

// Returns the sorted names in a folder.
absl::StatusOr<std::vector<std::string>> ListFolder(int folder) {
  // Use a separate descriptor, which has its own position.
  absl::StatusOr<FileDescriptor> own = OpenAt(folder, ".", kWorkerFolderFlags);
  if (!own.ok()) return own.status();
  std::unique_ptr<DIR, int (*)(DIR*)> entries(fdopendir(own->get()), &closedir);
  if (entries == nullptr) return ErrnoStatus(errno, "cannot list a folder");
  own->Release();  // closedir closes it
  std::vector<std::string> names;
  while (true) {
    errno = 0;  // readdir returns null for an error, too
    const dirent* entry = readdir(entries.get());
    if (entry == nullptr) break;
    names.emplace_back(entry->d_name);
  }
  if (errno != 0) return ErrnoStatus(errno, "cannot list a folder");
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

absl::StatusOr<StripeStore> StripeStore::Open(const std::string& root) {
  absl::StatusOr<FileDescriptor> folder = OpenAt(AT_FDCWD, root, O_RDONLY | O_DIRECTORY);
  if (!folder.ok())
    return absl::Status(folder.status().code(), absl::StrCat("data folder ", folder.status().message()));
  return StripeStore(*std::move(folder));
}

StripeStore::StripeStore(FileDescriptor root) : root_(std::move(root)) {}

absl::StatusOr<std::vector<uint32_t>> StripeStore::Workers() const {
  const absl::StatusOr<std::vector<std::string>> names = ListFolder(root_.get());
  if (!names.ok()) return names.status();
  std::vector<uint32_t> workers;
  for (const std::string& name : *names) {
    if (const std::optional<uint32_t> worker = ParseWorkerFolderName(name)) workers.push_back(*worker);
  }
  std::sort(workers.begin(), workers.end());  // the order of names puts worker-10000 before worker-9999
  return workers;
}

absl::StatusOr<std::vector<std::string>> StripeStore::Files(uint32_t worker) const {
  const absl::StatusOr<FileDescriptor> folder = OpenWorker(worker);
  if (!folder.ok()) return folder.status();
  absl::StatusOr<std::vector<std::string>> names = ListFolder(folder->get());
  if (names.ok()) std::erase_if(*names, [](const std::string& name) { return !ValidateFileName(name).ok(); });
  return names;
}

absl::Status StripeStore::CheckReadable() const {
  struct stat root {};
  if (fstat(root_.get(), &root) != 0) return ErrnoStatus(errno, "cannot look at the folder");
  if (root.st_nlink == 0) return absl::NotFoundError("the folder was removed");
  const absl::StatusOr<std::vector<uint32_t>> workers = Workers();
  if (!workers.ok()) return workers.status();
  for (const uint32_t worker : *workers) {
    if (const auto folder = OpenWorker(worker); !folder.ok()) return folder.status();
  }
  return absl::OkStatus();
}

std::string StripeStore::FolderName(uint32_t worker) const {
  return WorkerFolderName(worker);
}

absl::StatusOr<StripeStore::RegularFile> StripeStore::OpenRange(uint32_t worker, std::string_view file,
                                                                uint32_t replica, uint64_t offset,
                                                                uint32_t length) const {
  absl::StatusOr<RegularFile> stripe = OpenFile(worker, file, StripeFileName(replica));
  if (!stripe.ok()) return stripe.status();
  if (offset > stripe->bytes || length > stripe->bytes - offset)  // in this order, since the sum may overflow
    return absl::OutOfRangeError(absl::StrCat("stripe ", replica, " of worker ", worker, " has ", stripe->bytes,
                                              " bytes; wanted ", length, " from ", offset));
  return stripe;
}

absl::Status StripeStore::Read(uint32_t worker, std::string_view file, uint32_t replica, uint64_t offset,
                               uint32_t length, std::string* out) const {
  if (absl::Status checked = CheckLength(length, kMaxReadBytes); !checked.ok()) return checked;
  const absl::StatusOr<RegularFile> stripe = OpenRange(worker, file, replica, offset, length);
  if (!stripe.ok()) return stripe.status();
  return ReadAt(stripe->fd.get(), offset, length, out);
}

absl::Status StripeStore::CheckRange(uint32_t worker, std::string_view file, uint32_t replica, uint64_t offset,
                                     uint32_t length) const {
  if (absl::Status checked = CheckLength(length, kMaxSruBytes); !checked.ok()) return checked;
  return OpenRange(worker, file, replica, offset, length).status();
}

bool StripeStore::CanReadCached(uint32_t worker) const {
  const absl::StatusOr<FileDescriptor> folder = OpenWorker(worker);
  struct statfs system {};
  if (!folder.ok() || fstatfs(folder->get(), &system) != 0) return false;
  // Not the ones of a network or of a program: opening a file asks that.
  return system.f_type == EXT4_SUPER_MAGIC || system.f_type == kXfsMagic || system.f_type == BTRFS_SUPER_MAGIC;
}

bool StripeStore::ReadCached(uint32_t worker, std::string_view file, uint32_t replica, uint64_t offset, uint32_t length,
                             uint32_t check_length, std::string* out) const {
  if (!ValidateFileName(file).ok() || !CheckLength(length, kMaxReadBytes).ok()) return false;
  const std::string path = absl::StrCat(WorkerFolderName(worker), "/", absl::string_view(file.data(), file.size()), "/",
                                        StripeFileName(replica));
  open_how how{};
  how.flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_CACHED;
  const FileDescriptor stripe(static_cast<int>(syscall(SYS_openat2, root_.get(), path.c_str(), &how, sizeof(how))));
  struct stat info;
  if (!stripe.valid() || fstat(stripe.get(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  const auto bytes = static_cast<uint64_t>(info.st_size);
  if (offset > bytes || std::max(length, check_length) > bytes - offset) return false;
  out->resize(length);
  iovec target{.iov_base = out->data(), .iov_len = length};
  return preadv2(stripe.get(), &target, 1, static_cast<off_t>(offset), RWF_NOWAIT) == static_cast<ssize_t>(length);
}

absl::StatusOr<uint64_t> StripeStore::StripeBytes(uint32_t worker, std::string_view file, uint32_t replica) const {
  const absl::StatusOr<RegularFile> stripe = OpenFile(worker, file, StripeFileName(replica));
  if (!stripe.ok()) return stripe.status();
  return stripe->bytes;
}

absl::StatusOr<uint64_t> StripeStore::ReadManifest(uint32_t worker, std::string_view file, uint64_t offset,
                                                   uint32_t length, std::string* out) const {
  absl::Status checked = CheckLength(length, kMaxReadBytes);
  if (!checked.ok()) return checked;
  const absl::StatusOr<RegularFile> manifest = OpenFile(worker, file, std::string(kManifestFileName));
  if (!manifest.ok()) return manifest.status();
  if (offset > manifest->bytes)
    return absl::OutOfRangeError(
        absl::StrCat("the manifest has ", manifest->bytes, " bytes; wanted some from ", offset));
  const auto there = static_cast<uint32_t>(std::min<uint64_t>(length, manifest->bytes - offset));
  absl::Status read = ReadAt(manifest->fd.get(), offset, there, out);
  if (!read.ok()) return read;
  return manifest->bytes;
}

absl::StatusOr<FileDescriptor> StripeStore::OpenWorker(uint32_t worker) const {
  return OpenComponent(root_.get(), WorkerFolderName(worker), kWorkerFolderFlags, absl::StrCat("worker ", worker));
}

absl::StatusOr<StripeStore::RegularFile> StripeStore::OpenFile(uint32_t worker, std::string_view file,
                                                               const std::string& part) const {
  absl::Status valid = ValidateFileName(file);
  if (!valid.ok()) return valid;
  const absl::StatusOr<FileDescriptor> worker_folder = OpenWorker(worker);
  if (!worker_folder.ok()) return worker_folder.status();
  const std::string name(file);
  const absl::StatusOr<FileDescriptor> folder =
      OpenComponent(worker_folder->get(), name, kWorkerFolderFlags, absl::StrCat("file ", name, " at worker ", worker));
  if (!folder.ok()) return folder.status();
  const std::string what = absl::StrCat(part, " of file ", name, " at worker ", worker);
  // O_NONBLOCK keeps a FIFO from blocking the thread; it has no effect on a regular file.
  absl::StatusOr<FileDescriptor> opened = OpenComponent(folder->get(), part, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, what);
  if (!opened.ok()) return opened.status();
  struct stat info;
  if (fstat(opened->get(), &info) != 0) return ErrnoStatus(errno, what);
  if (!S_ISREG(info.st_mode)) return absl::NotFoundError(absl::StrCat("no ", what, " here: it is not a regular file"));
  return RegularFile{*std::move(opened), static_cast<uint64_t>(info.st_size)};
}

}  // namespace sluice
