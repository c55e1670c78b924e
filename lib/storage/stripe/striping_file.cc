#include "lib/storage/stripe/striping_file.h"

#include <utility>
#include <vector>

#include <fcntl.h>

#include "absl/strings/str_cat.h"
#include "lib/storage/stripe/crc32c.h"
#include "lib/storage/stripe/file_descriptor.h"
#include "lib/storage/stripe/manifest.h"
#include "lib/storage/stripe/manifest_builder.h"
#include "lib/storage/stripe/stripe_layout.h"
#include "lib/storage/stripe/stripe_name.h"
#include "lib/storage/stripe/stripe_staging.h"
#include "lib/storage/stripe/tree_file.h"

namespace sluice {
namespace {

// Appends to the stripe files of one file, and keeps them open if it may.
class StripeFiles {
 public:
  StripeFiles(const StripeStaging& staging, uint32_t workers, uint32_t replicas)
      : staging_(staging), workers_(workers), replicas_(replicas) {}

  // Create empty stripes at workers without a byte, to distinguish them from missing replicas.
  absl::Status Make(bool keep_open) {
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

// A file over workers, at the lowest level.
class LeafFile final : public StripingFile {
 public:
  static absl::StatusOr<std::unique_ptr<StripingFile>> Create(const Spec& spec) {
    const StripeLevel& level = spec.levels.front();
    auto staging = StripeStaging::Create(spec.root, spec.file, level.workers, spec.replace);
    if (!staging.ok()) return staging.status();
    std::unique_ptr<LeafFile> file(new LeafFile(spec, *std::move(staging)));
    absl::Status made = file->files_.Make(spec.keep_open);
    if (!made.ok()) return made;
    return file;
  }

  absl::Status Append(std::string_view data) override {
    while (!data.empty()) {
      if (builder_.sru() >= max_srus_) return TooManySrus(max_srus_, builder_.manifest().sru_bytes());
      const std::string_view part = data.substr(0, builder_.room());
      absl::Status written = files_.AppendToAllReplicas(builder_.sru(), part);
      if (!written.ok()) return written;
      builder_.Add(part);
      data.remove_prefix(part.size());
    }
    return absl::OkStatus();
  }

  absl::Status Finish(uint32_t upper_manifest_crc32c) override {
    builder_.BelongTo(upper_manifest_crc32c);
    const std::string stored = EncodeManifest(builder_.manifest());
    stored_crc32c_ = Crc32c(stored);
    const std::string name(kManifestFileName);
    for (uint32_t worker = 0; worker < builder_.manifest().workers(); ++worker) {
      const absl::StatusOr<FileDescriptor> file = staging_->Open(worker, name, O_WRONLY | O_CREAT | O_EXCL);
      if (!file.ok()) return file.status();
      absl::Status written = WriteAll(file->get(), stored, staging_->Describe(worker, name));
      if (!written.ok()) return written;
    }
    return absl::OkStatus();
  }

  absl::Status Prepare(const std::string& top, std::vector<PublicationStep>& steps) override {
    return staging_->Prepare(top, stored_crc32c_, steps);
  }
  absl::Status Publish(const std::function<void()>& on_step) override { return staging_->Publish(on_step); }
  void Keep() override { staging_->Keep(); }
  const v1::Manifest& manifest() const override { return builder_.manifest(); }

 private:
  LeafFile(const Spec& spec, std::unique_ptr<StripeStaging> staging)
      : staging_(std::move(staging)),
        files_(*staging_, spec.levels.front().workers, spec.levels.front().replicas),
        builder_(spec.leaf_sru_bytes, spec.levels.front().workers, spec.levels.front().replicas),
        max_srus_(spec.max_srus) {}

  const std::unique_ptr<StripeStaging> staging_;
  StripeFiles files_;
  ManifestBuilder builder_;
  uint32_t stored_crc32c_ = 0;  // of the manifest, once it is written
  const uint64_t max_srus_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StripingFile>> StripingFile::Create(const Spec& spec) {
  return spec.levels.size() == 1 ? LeafFile::Create(spec) : TreeFile::Create(spec);
}

uint64_t SruBytesOf(absl::Span<const StripeLevel> levels, uint32_t leaf_sru_bytes) {
  uint64_t bytes = leaf_sru_bytes;
  for (const StripeLevel& below : levels.subspan(1)) bytes *= below.workers;
  return bytes;
}

absl::Status TooManySrus(uint64_t max_srus, uint64_t sru_bytes) {
  return absl::OutOfRangeError(
      absl::StrCat("the input has more than ", max_srus, " SRUs of ", sru_bytes, " bytes; give a larger SRU"));
}

}  // namespace sluice
