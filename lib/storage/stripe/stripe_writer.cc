#include "lib/storage/stripe/stripe_writer.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "lib/storage/stripe/file_descriptor.h"
#include "lib/storage/stripe/manifest.h"
#include "lib/storage/stripe/publication.h"
#include "lib/storage/stripe/stripe_folder.h"
#include "lib/storage/stripe/stripe_name.h"
#include "lib/storage/stripe/tree_file.h"

namespace sluice {
namespace {

constexpr size_t kBufferBytes = 1 << 20;
constexpr uint64_t kMaxStripes = 1 << 20;  // files of one run: workers * replicas, over all levels
constexpr uint64_t kMaxOpenStripes = 512;  // half of the usual limit of a process

// Reads the input in order to its end, and detects whether it changed during the read.
class StripeInput {
 public:
  StripeInput(int fd, int stop_fd) : fd_(fd), stop_fd_(stop_fd), before_(Stat()) {}

  // Fills the buffer until the input ends; the buffer is empty at the end.
  absl::Status Fill(std::string& buffer) const {
    buffer.resize(kBufferBytes);
    size_t done = 0;
    while (done < buffer.size()) {
      absl::Status ready = WaitForInput();
      if (!ready.ok()) return ready;
      const ssize_t got = read(fd_, buffer.data() + done, buffer.size() - done);
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got < 0) return ErrnoStatus(errno, "cannot read the input");
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    buffer.resize(done);
    return absl::OkStatus();
  }

  // Returns the remaining size of a regular file from its current position; 0: unknown.
  uint64_t ExpectedBytes() const {
    if (!S_ISREG(before_.st_mode)) return 0;
    return static_cast<uint64_t>(std::max<off_t>(0, before_.st_size - lseek(fd_, 0, SEEK_CUR)));
  }

  absl::Status CheckUnchanged() const {
    if (!S_ISREG(before_.st_mode)) return absl::OkStatus();
    const struct stat after = Stat();
    const bool same = after.st_size == before_.st_size && after.st_mtim.tv_sec == before_.st_mtim.tv_sec &&
                      after.st_mtim.tv_nsec == before_.st_mtim.tv_nsec;
    if (same) return absl::OkStatus();
    return absl::AbortedError(absl::StrCat("the input changed while it was striped: it had ", before_.st_size,
                                           " bytes, now ", after.st_size, "; nothing was kept"));
  }

 private:
  struct stat Stat() const {
    struct stat info = {};
    fstat(fd_, &info);  // a bad descriptor fails in read, with a better message
    return info;
  }

  absl::Status WaitForInput() const {
    pollfd wanted[] = {{stop_fd_, POLLIN, 0}, {fd_, POLLIN, 0}};
    while (poll(wanted, 2, -1) < 0) {
      if (errno != EINTR) return ErrnoStatus(errno, "cannot wait for the input");
    }
    return wanted[0].revents == 0 ? absl::OkStatus() : absl::CancelledError("interrupted; nothing was kept");
  }

  const int fd_;
  const int stop_fd_;
  const struct stat before_;
};

// Returns the levels from the top of the tree to the workers.
std::vector<StripeLevel> LevelsOf(const StripeSpec& spec) {
  std::vector<StripeLevel> levels = spec.levels_above;
  levels.push_back({.workers = spec.workers, .replicas = spec.replicas});
  return levels;
}

uint64_t StripesOf(absl::Span<const StripeLevel> levels) {
  constexpr uint64_t kMost = uint64_t{1} << 62;
  uint64_t stripes = 1;
  for (const StripeLevel& level : levels) {
    const uint64_t here = uint64_t{level.workers} * level.replicas;
    stripes = stripes > kMost / here ? kMost : stripes * here;
  }
  return stripes;
}

absl::Status CheckSpec(const StripeSpec& spec, absl::Span<const StripeLevel> levels) {
  for (; !levels.empty(); levels.remove_prefix(1)) {
    const uint64_t sru_bytes = SruBytesOf(levels, spec.sru_bytes);
    if (levels.size() > 1 && sru_bytes > kMaxSruBytes) {
      return absl::InvalidArgumentError(absl::StrCat("sru_bytes times the workers of the levels below is ", sru_bytes,
                                                     "; it must be at most ", kMaxSruBytes));
    }
    absl::Status shape =
        ValidateStripeShape(static_cast<uint32_t>(sru_bytes), levels.front().workers, levels.front().replicas);
    if (!shape.ok()) return shape;
  }
  return ValidateFileName(spec.file);
}

// Checks each level: a file of a level below is a stripe, and has at least its share of the file above.
absl::Status CheckSize(uint64_t file_bytes, const StripeSpec& spec, absl::Span<const StripeLevel> levels) {
  for (; !levels.empty(); levels.remove_prefix(1)) {
    const uint64_t sru_bytes = SruBytesOf(levels, spec.sru_bytes);
    if (file_bytes > spec.max_srus * sru_bytes) return TooManySrus(spec.max_srus, sru_bytes);
    file_bytes /= levels.front().workers;
  }
  return absl::OkStatus();
}

absl::Status StripeInputToFile(const StripeInput& input, const StripeSpec& spec, StripingFile& file) {
  std::string buffer;
  do {
    absl::Status status = input.Fill(buffer);
    if (status.ok()) status = file.Append(buffer);
    if (!status.ok()) return status;
    if (spec.on_progress) spec.on_progress(file.manifest().file_bytes());
  } while (!buffer.empty());
  return input.CheckUnchanged();
}

// The order matters if the machine fails: the stripes are on disk before the journal, the journal before the first
// rename, and all renames before the journal goes. The older file is removed last.
absl::Status Publish(const StripeFolder& root, const StripeSpec& spec, StripingFile& file) {
  std::vector<PublicationStep> steps;
  absl::Status status = file.Prepare(root.path(), steps);
  if (status.ok()) status = BeginPublication(root, spec.file, steps);
  if (status.ok()) status = file.Publish(spec.on_published);
  if (status.ok()) status = EndPublication(root, spec.file);
  if (status.ok()) file.Keep();
  return status;
}

}  // namespace

absl::StatusOr<v1::Manifest> StripeFile(int input_fd, const StripeSpec& spec) {
  const std::vector<StripeLevel> levels = LevelsOf(spec);
  absl::Status status = CheckSpec(spec, levels);
  if (!status.ok()) return status;
  const uint64_t stripes = StripesOf(levels);
  if (stripes > kMaxStripes) {
    return absl::InvalidArgumentError(
        absl::StrCat("workers * replicas is ", stripes, "; it must be at most ", kMaxStripes));
  }
  if (fcntl(input_fd, F_GETFD) < 0) return ErrnoStatus(errno, "cannot read the input");  // poll would wait forever
  const StripeInput input(input_fd, spec.stop_fd);
  status = CheckSize(input.ExpectedBytes(), spec, levels);  // before hours of writing
  if (!status.ok()) return status;
  auto root = StripeFolder::Open(spec.root);
  if (!root.ok()) return root.status();
  status = RecoverPublications(**root);
  if (!status.ok()) return status;
  auto file = StripingFile::Create({.root = *root,
                                    .file = spec.file,
                                    .levels = levels,
                                    .leaf_sru_bytes = spec.sru_bytes,
                                    .replace = spec.replace,
                                    .max_srus = spec.max_srus,
                                    .keep_open = stripes <= kMaxOpenStripes});
  if (!file.ok()) return file.status();
  if (levels.size() > 1) status = RefuseOtherTrees(spec.root, spec.file);
  if (status.ok()) status = StripeInputToFile(input, spec, **file);
  if (status.ok()) status = (*file)->Finish(/*upper_manifest_crc32c=*/0);
  if (status.ok()) status = Publish(**root, spec, **file);
  if (status.ok()) return (*file)->manifest();
  file->reset();  // undoes what is published
  if (absl::Status ended = EndPublication(**root, spec.file); !ended.ok()) return ended;
  return status;
}

absl::Status RecoverStripes(const std::string& root) {
  if (!std::filesystem::is_directory(root)) return absl::NotFoundError(absl::StrCat(root, " is no folder"));
  const auto folder = StripeFolder::Open(root);
  return folder.ok() ? RecoverPublications(**folder) : folder.status();
}

}  // namespace sluice
