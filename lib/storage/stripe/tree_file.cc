#include "lib/storage/stripe/tree_file.h"

#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/storage/stripe/manifest.h"
#include "lib/storage/stripe/stripe_layout.h"
#include "lib/storage/stripe/stripe_name.h"

namespace sluice {
namespace {

// Returns a part of the file that this run does not replace.
std::optional<std::string> FindOtherPart(const std::filesystem::path& folder, const std::string& file) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (ParseMidLevelFolderName(name).has_value()) {
      if (auto found = FindOtherPart(entry.path(), file); found.has_value()) return found;
    }
    if (!ParseWorkerFolderName(name).has_value()) continue;
    for (const auto& part : std::filesystem::directory_iterator(entry.path())) {
      const std::string part_name = part.path().filename();
      const bool staged = std::filesystem::exists(entry.path() / absl::StrCat(".new-", part_name));
      if (!staged && IsPartOfFile(part_name, file)) return part.path();
    }
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StripingFile>> TreeFile::Create(const Spec& spec) {
  std::unique_ptr<TreeFile> file(new TreeFile(spec));
  absl::Status made = file->Make(spec);
  if (!made.ok()) return made;
  return file;
}

TreeFile::TreeFile(const Spec& spec)
    : builder_(static_cast<uint32_t>(SruBytesOf(spec.levels, spec.leaf_sru_bytes)), spec.levels.front().workers,
               spec.levels.front().replicas),
      max_srus_(spec.max_srus),
      files_each_(spec.levels.front().replicas + 1) {}

// Destroys the last file first: the files of one folder share it, and the first file created it.
TreeFile::~TreeFile() {
  while (!lower_.empty()) lower_.pop_back();
}

absl::Status TreeFile::Make(const Spec& spec) {
  const StripeLevel& level = spec.levels.front();
  for (uint32_t aggregator = 0; aggregator < level.workers; ++aggregator) {
    absl::Status made;
    for (uint32_t replica = 0; replica < level.replicas && made.ok(); ++replica) {
      made = MakeLower(spec, aggregator, LowerStripeName(spec.file, aggregator, replica));
    }
    if (made.ok()) made = MakeLower(spec, aggregator, LowerManifestName(spec.file, aggregator));
    if (!made.ok()) return made;
  }
  return absl::OkStatus();
}

absl::Status TreeFile::MakeLower(const Spec& spec, uint32_t aggregator, const absl::StatusOr<std::string>& name) {
  if (!name.ok()) return name.status();
  auto folder = spec.root->MidLevel(aggregator);
  if (!folder.ok()) return folder.status();
  auto lower = StripingFile::Create({.root = *std::move(folder),
                                     .file = *name,
                                     .levels = spec.levels.subspan(1),
                                     .leaf_sru_bytes = spec.leaf_sru_bytes,
                                     .replace = spec.replace,
                                     .max_srus = spec.max_srus,
                                     .keep_open = spec.keep_open && !IsManifest(lower_.size())});
  if (!lower.ok()) return lower.status();
  lower_.push_back(*std::move(lower));
  return absl::OkStatus();
}

absl::Status TreeFile::Append(std::string_view data) {
  while (!data.empty()) {
    if (builder_.sru() >= max_srus_) return TooManySrus(max_srus_, builder_.manifest().sru_bytes());
    const std::string_view part = data.substr(0, builder_.room());
    for (uint32_t replica = 0; replica < builder_.manifest().replicas(); ++replica) {
      const uint32_t aggregator = StripeWorker(builder_.sru(), replica, builder_.manifest().workers());
      absl::Status written = stripe(aggregator, replica).Append(part);
      if (!written.ok()) return written;
    }
    builder_.Add(part);
    data.remove_prefix(part.size());
  }
  return absl::OkStatus();
}

absl::Status TreeFile::Finish(uint32_t upper_manifest_crc32c) {
  builder_.BelongTo(upper_manifest_crc32c);
  const uint32_t own_crc32c = ManifestCrc32c(builder_.manifest());
  const std::string stored = EncodeManifest(builder_.manifest());
  absl::Status status;
  for (uint32_t aggregator = 0; aggregator < builder_.manifest().workers() && status.ok(); ++aggregator) {
    status = manifest_at(aggregator).Append(stored);
  }
  for (size_t i = 0; i < lower_.size() && status.ok(); ++i) status = lower_[i]->Finish(own_crc32c);
  return status;
}

absl::Status TreeFile::Prepare(const std::string& top, std::vector<PublicationStep>& steps) {
  absl::Status status;
  for (size_t i = 0; i < lower_.size() && status.ok(); ++i) status = lower_[i]->Prepare(top, steps);
  return status;
}

// Publishes all stripes before all manifests, so that a reader of a new manifest finds new stripes everywhere.
absl::Status TreeFile::Publish(const std::function<void()>& on_step) {
  absl::Status status;
  for (const bool manifests : {false, true}) {
    for (size_t i = 0; i < lower_.size() && status.ok(); ++i) {
      if (IsManifest(i) == manifests) status = lower_[i]->Publish(on_step);
    }
  }
  return status;
}

void TreeFile::Keep() {
  for (const auto& lower : lower_) lower->Keep();
}

absl::Status RefuseOtherTrees(const std::string& root, const std::string& file) {
  const auto found = FindOtherPart(root, file);
  if (!found.has_value()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(*found, " belongs to an older \"", file,
                                                    "\" of another shape; remove that first, or give another name"));
}

}  // namespace sluice
