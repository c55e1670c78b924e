#include "lib/storage/stripe/stripe_staging.h"

#include <cerrno>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "lib/storage/stripe/stripe_name.h"
#include "lib/storage/stripe/stripe_store.h"

namespace sluice {
namespace {

constexpr mode_t kNewFolderMode = 0755;
constexpr mode_t kFileMode = 0644;
constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY;

void RemoveTree(const std::string& path) {
  std::error_code ignored;  // leftovers are invisible to readers, and the next run tries again
  std::filesystem::remove_all(path, ignored);
}

}  // namespace

absl::StatusOr<std::unique_ptr<StripeStaging>> StripeStaging::Create(std::shared_ptr<StripeFolder> root,
                                                                     std::string_view file, uint32_t workers,
                                                                     bool replace) {
  absl::Status valid = ValidateFileName(file);
  if (!valid.ok()) return valid;
  std::unique_ptr<StripeStaging> staging(new StripeStaging(std::move(root), file, workers));
  absl::Status inspected = staging->InspectWorkers(replace);
  if (!inspected.ok()) return inspected;
  for (uint32_t worker = 0; worker < workers; ++worker) {
    absl::Status made = staging->MakeWorker(worker);
    if (!made.ok()) return made;
  }
  return staging;
}

StripeStaging::StripeStaging(std::shared_ptr<StripeFolder> root, std::string_view file, uint32_t workers)
    : root_(std::move(root)), file_(file), workers_(workers) {}

StripeStaging::~StripeStaging() {
  if (!kept_) {
    // If undoing fails, the staged folder may have the only copy of the old file, so keep it.
    for (auto change = changes_.rbegin(); change != changes_.rend(); ++change) {
      if (!Undo(*change)) std::erase(staged_, change->worker);
    }
  }
  for (const uint32_t worker : staged_) RemoveTree(Absolute(StagedPath(worker)));
  if (kept_) return;
  for (const uint32_t worker : folders_made_) unlinkat(root_->fd(), WorkerFolderName(worker).c_str(), AT_REMOVEDIR);
}

// Inspects earlier copies of the file, and removes the leftovers of a killed run.
absl::Status StripeStaging::InspectWorkers(bool replace) {
  const absl::StatusOr<StripeStore> store = StripeStore::Open(root_->path());
  if (!store.ok()) return store.status();
  const absl::StatusOr<std::vector<uint32_t>> present = store->Workers();
  if (!present.ok()) return present.status();
  for (const uint32_t worker : *present) {
    RemoveTree(Absolute(StagedPath(worker)));
    if (!Exists(FinalPath(worker))) continue;
    if (!replace)
      return absl::AlreadyExistsError(absl::StrCat(Absolute(FinalPath(worker)), " exists; --force replaces it"));
    if (worker >= workers_) outdated_.push_back(worker);
  }
  return absl::OkStatus();
}

absl::Status StripeStaging::MakeWorker(uint32_t worker) {
  const std::string folder = WorkerFolderName(worker);
  if (mkdirat(root_->fd(), folder.c_str(), kNewFolderMode) == 0) {
    folders_made_.push_back(worker);
  } else if (errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("cannot make folder ", Absolute(folder)));
  }
  // Reject a link here, because no worker would follow it.
  const absl::StatusOr<FileDescriptor> opened = OpenAt(root_->fd(), folder, kFolderFlags | O_NOFOLLOW);
  if (!opened.ok())
    return absl::Status(opened.status().code(),
                        absl::StrCat(Absolute(folder), " must be a folder, and no link: ", opened.status().message()));
  if (mkdirat(root_->fd(), StagedPath(worker).c_str(), kNewFolderMode) != 0)
    return ErrnoStatus(errno, absl::StrCat("cannot make folder ", Absolute(StagedPath(worker))));
  staged_.push_back(worker);
  return absl::OkStatus();
}

absl::StatusOr<FileDescriptor> StripeStaging::Open(uint32_t worker, const std::string& name, int flags) const {
  absl::StatusOr<FileDescriptor> file =
      OpenAt(root_->fd(), absl::StrCat(StagedPath(worker), "/", name), flags | O_NOFOLLOW, kFileMode);
  if (!file.ok())
    return absl::Status(file.status().code(), absl::StrCat("in ", root_->path(), ": ", file.status().message()));
  return file;
}

std::string StripeStaging::Describe(uint32_t worker, const std::string& name) const {
  return absl::StrCat(Absolute(StagedPath(worker)), "/", name);
}

absl::Status StripeStaging::Prepare(const std::string& top, uint32_t manifest_crc32c,
                                    std::vector<PublicationStep>& steps) const {
  const std::string below = root_->path() == top ? "" : absl::StrCat(root_->path().substr(top.size() + 1), "/");
  const auto add = [&](uint32_t worker, std::optional<uint32_t> version) {
    steps.push_back(
        {.folder = absl::StrCat(below, WorkerFolderName(worker)), .name = file_, .manifest_crc32c = version});
  };
  for (uint32_t worker = 0; worker < workers_; ++worker) add(worker, manifest_crc32c);
  for (const uint32_t worker : outdated_) add(worker, std::nullopt);
  return Sync();
}

absl::Status StripeStaging::Publish(const std::function<void()>& on_step) {
  absl::Status status;
  for (uint32_t worker = 0; worker < workers_ && status.ok(); ++worker) {
    status = PublishWorker(worker);
    if (status.ok() && on_step != nullptr) on_step();
  }
  for (size_t i = 0; i < outdated_.size() && status.ok(); ++i) {
    status = RemoveWorker(outdated_[i]);
    if (status.ok() && on_step != nullptr) on_step();
  }
  return status.ok() ? Sync() : status;
}

// Exchanges the folders atomically: a reader finds the old stripes or the new ones. Rejected: renaming the old folder
// away first. Every file system can do that, but then neither folder exists for a moment, or, after a crash,
// permanently.
absl::Status StripeStaging::PublishWorker(uint32_t worker) {
  const bool replaces = Exists(FinalPath(worker));
  const unsigned flags = replaces ? RENAME_EXCHANGE : 0;
  if (renameat2(root_->fd(), StagedPath(worker).c_str(), root_->fd(), FinalPath(worker).c_str(), flags) != 0)
    return ErrnoStatus(errno,
                       absl::StrCat(replaces ? "cannot exchange " : "cannot make ", Absolute(FinalPath(worker))));
  changes_.push_back({replaces ? Change::Kind::kExchanged : Change::Kind::kAdded, worker});
  return absl::OkStatus();
}

absl::Status StripeStaging::RemoveWorker(uint32_t worker) {
  if (renameat(root_->fd(), FinalPath(worker).c_str(), root_->fd(), StagedPath(worker).c_str()) != 0)
    return ErrnoStatus(errno, absl::StrCat("cannot remove ", Absolute(FinalPath(worker))));
  staged_.push_back(worker);
  changes_.push_back({Change::Kind::kRemoved, worker});
  return absl::OkStatus();
}

bool StripeStaging::Undo(Change change) const {
  std::string from = FinalPath(change.worker);
  std::string to = StagedPath(change.worker);
  if (change.kind == Change::Kind::kRemoved) std::swap(from, to);
  const unsigned flags = change.kind == Change::Kind::kExchanged ? RENAME_EXCHANGE : 0;
  return renameat2(root_->fd(), from.c_str(), root_->fd(), to.c_str(), flags) == 0;
}

// Calls syncfs once for each file system, instead of fsync for each of perhaps thousands of small files and folders.
absl::Status StripeStaging::Sync() const {
  std::set<dev_t> synced;
  std::vector<uint32_t> changed = outdated_;
  for (uint32_t worker = 0; worker < workers_; ++worker) changed.push_back(worker);
  for (const uint32_t worker : changed) {
    const absl::StatusOr<FileDescriptor> folder = OpenAt(root_->fd(), WorkerFolderName(worker), kFolderFlags);
    if (!folder.ok()) return folder.status();
    struct stat info;
    if (fstat(folder->get(), &info) != 0) return ErrnoStatus(errno, Absolute(WorkerFolderName(worker)));
    if (!synced.insert(info.st_dev).second) continue;
    if (syncfs(folder->get()) != 0)
      return ErrnoStatus(errno, absl::StrCat("cannot write back ", Absolute(WorkerFolderName(worker))));
  }
  return absl::OkStatus();
}

bool StripeStaging::Exists(const std::string& path) const {
  return faccessat(root_->fd(), path.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

std::string StripeStaging::StagedPath(uint32_t worker) const {
  return absl::StrCat(WorkerFolderName(worker), "/.new-", file_);
}

std::string StripeStaging::FinalPath(uint32_t worker) const {
  return absl::StrCat(WorkerFolderName(worker), "/", file_);
}

std::string StripeStaging::Absolute(const std::string& path) const {
  return absl::StrCat(root_->path(), "/", path);
}

}  // namespace sluice
