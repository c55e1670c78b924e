#include "lib/stripe/stripe_writer.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "lib/stripe/crc32c.h"
#include "lib/stripe/file_descriptor.h"
#include "lib/stripe/manifest.h"
#include "lib/stripe/stripe_layout.h"
#include "lib/stripe/stripe_name.h"
#include "lib/stripe/stripe_staging.h"

namespace sluice {
namespace {

constexpr size_t kBufferBytes = 1 << 20;
constexpr uint64_t kMaxStripes = 1 << 20;  // files of one run: workers * replicas
constexpr uint64_t kMaxOpenStripes = 512;  // half of the usual limit of a process

// Reads the input in order, to its end, and knows whether it changed meanwhile.
class StripeInput {
 public:
  StripeInput(int fd, int stop_fd) : fd_(fd), stop_fd_(stop_fd), before_(Stat()) {}

  // Fills the buffer as far as the input goes; empty at its end.
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

  // Of a regular file, from where it stands; 0: not known.
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

// The stripe files of one run. Appends; keeps them open where they are few.
class StripeFiles {
 public:
  StripeFiles(const StripeStaging& staging, uint32_t workers, uint32_t replicas)
      : staging_(staging), workers_(workers), replicas_(replicas) {}

  // Workers without a byte have empty stripes, so that a replica that was never kept differs from an empty one.
  absl::Status Make() {
    const bool keep_open = uint64_t{workers_} * replicas_ <= kMaxOpenStripes;
    for (uint32_t worker = 0; worker < workers_; ++worker) {
      for (uint32_t replica = 0; replica < replicas_; ++replica) {
        absl::StatusOr<FileDescriptor> made = Open(worker, replica, O_CREAT | O_EXCL);
        if (!made.ok()) return made.status();
        if (keep_open) open_.push_back(*std::move(made));
      }
    }
    return absl::OkStatus();
  }

  absl::Status AppendToAllReplicas(uint64_t sru, std::string_view data) {
    for (uint32_t replica = 0; replica < replicas_; ++replica) {
      absl::Status status = Append(StripeWorker(sru, replica, workers_), replica, data);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<FileDescriptor> Open(uint32_t worker, uint32_t replica, int flags) const {
    return staging_.Open(worker, StripeFileName(replica), O_WRONLY | O_APPEND | flags);
  }

  absl::Status Append(uint32_t worker, uint32_t replica, std::string_view data) {
    const std::string what = staging_.Describe(worker, StripeFileName(replica));
    if (!open_.empty()) return WriteAll(open_[size_t{worker} * replicas_ + replica].get(), data, what);
    const absl::StatusOr<FileDescriptor> file = Open(worker, replica, 0);
    return file.ok() ? WriteAll(file->get(), data, what) : file.status();
  }

  const StripeStaging& staging_;
  const uint32_t workers_;
  const uint32_t replicas_;
  std::vector<FileDescriptor> open_;
};

// The manifest as it grows, byte for byte of the file.
class ManifestBuilder {
 public:
  explicit ManifestBuilder(const StripeSpec& spec) {
    manifest_.set_sru_bytes(spec.sru_bytes);
    manifest_.set_workers(spec.workers);
    manifest_.set_replicas(spec.replicas);
  }

  uint64_t sru() const { return manifest_.file_bytes() / manifest_.sru_bytes(); }  // that the next byte belongs to
  size_t room() const { return manifest_.sru_bytes() - OffsetInSru(); }            // bytes until the one after it

  // At most room() bytes.
  void Add(std::string_view data) {
    if (OffsetInSru() == 0) manifest_.add_sru_crc32c(0);
    uint32_t& last = manifest_.mutable_sru_crc32c()->at(manifest_.sru_crc32c_size() - 1);
    last = Crc32c(data, last);
    manifest_.set_file_crc32c(Crc32c(data, manifest_.file_crc32c()));
    manifest_.set_file_bytes(manifest_.file_bytes() + data.size());
  }

  const v1::Manifest& manifest() const { return manifest_; }

 private:
  uint64_t OffsetInSru() const { return manifest_.file_bytes() % manifest_.sru_bytes(); }

  v1::Manifest manifest_;
};

absl::Status CheckSpec(const StripeSpec& spec) {
  absl::Status shape = ValidateStripeShape(spec.sru_bytes, spec.workers, spec.replicas);
  if (!shape.ok()) return shape;
  const uint64_t stripes = uint64_t{spec.workers} * spec.replicas;
  if (stripes <= kMaxStripes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("workers * replicas is ", stripes, "; it must be at most ", kMaxStripes));
}

absl::Status TooManySrus(const StripeSpec& spec) {
  return absl::OutOfRangeError(absl::StrCat("the input has more than ", spec.max_srus, " SRUs of ", spec.sru_bytes,
                                            " bytes; give a larger SRU"));
}

absl::Status StripeBuffer(std::string_view data, const StripeSpec& spec, StripeFiles& files, ManifestBuilder& builder) {
  while (!data.empty()) {
    if (builder.sru() >= spec.max_srus) return TooManySrus(spec);
    const std::string_view part = data.substr(0, builder.room());
    absl::Status written = files.AppendToAllReplicas(builder.sru(), part);
    if (!written.ok()) return written;
    builder.Add(part);
    data.remove_prefix(part.size());
  }
  return absl::OkStatus();
}

absl::Status StripeInputToFiles(const StripeInput& input, const StripeSpec& spec, StripeFiles& files,
                                ManifestBuilder& builder) {
  std::string buffer;
  do {
    absl::Status status = input.Fill(buffer);
    if (status.ok()) status = StripeBuffer(buffer, spec, files, builder);
    if (!status.ok()) return status;
    if (spec.on_progress) spec.on_progress(builder.manifest().file_bytes());
  } while (!buffer.empty());
  return input.CheckUnchanged();
}

absl::Status WriteManifests(const StripeStaging& staging, const v1::Manifest& manifest) {
  const std::string stored = EncodeManifest(manifest);
  const std::string name(kManifestFileName);
  for (uint32_t worker = 0; worker < manifest.workers(); ++worker) {
    const absl::StatusOr<FileDescriptor> file = staging.Open(worker, name, O_WRONLY | O_CREAT | O_EXCL);
    if (!file.ok()) return file.status();
    absl::Status written = WriteAll(file->get(), stored, staging.Describe(worker, name));
    if (!written.ok()) return written;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::Manifest> StripeFile(int input_fd, const StripeSpec& spec) {
  absl::Status status = CheckSpec(spec);
  if (!status.ok()) return status;
  if (fcntl(input_fd, F_GETFD) < 0) return ErrnoStatus(errno, "cannot read the input");  // poll would wait for ever
  const StripeInput input(input_fd, spec.stop_fd);
  if (input.ExpectedBytes() > spec.max_srus * spec.sru_bytes) return TooManySrus(spec);  // before hours of writing
  absl::StatusOr<std::unique_ptr<StripeStaging>> staging =
      StripeStaging::Create(spec.root, spec.file, spec.workers, spec.replace);
  if (!staging.ok()) return staging.status();

  StripeFiles files(**staging, spec.workers, spec.replicas);
  ManifestBuilder builder(spec);
  status = files.Make();
  if (status.ok()) status = StripeInputToFiles(input, spec, files, builder);
  if (status.ok()) status = WriteManifests(**staging, builder.manifest());
  if (status.ok()) status = (*staging)->Publish();
  if (!status.ok()) return status;
  return builder.manifest();
}

}  // namespace sluice
