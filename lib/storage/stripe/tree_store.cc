#include "lib/storage/stripe/tree_store.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/storage/stripe/manifest.h"
#include "lib/storage/stripe/stripe_name.h"
#include "lib/storage/stripe/stripe_store.h"

namespace sluice {
namespace {

// Returns the layout of the first worker with a valid manifest.
absl::StatusOr<StripeLayout> FindLayout(const StripeSource& source, const std::string& file) {
  const auto workers = source.Workers();
  if (!workers.ok()) return workers.status();
  absl::Status problem = absl::NotFoundError(absl::StrCat("no file ", file, " at the level below"));
  for (const uint32_t worker : *workers) {
    const auto stored = ReadWholeManifest(source, worker, file);
    if (absl::IsNotFound(stored.status())) continue;
    auto manifest = stored.ok() ? DecodeManifest(*stored) : stored.status();
    if (manifest.ok()) return StripeLayout::Create(*std::move(manifest));
    problem = manifest.status();
  }
  return problem;
}

std::set<uint32_t> AggregatorsIn(const std::string& root) {
  std::set<uint32_t> aggregators;
  std::error_code ignored;  // a folder that cannot be listed cannot be opened as a store either
  for (const auto& entry : std::filesystem::directory_iterator(root, ignored)) {
    const auto aggregator = ParseMidLevelFolderName(entry.path().filename().string());
    if (aggregator.has_value()) aggregators.insert(*aggregator);
  }
  return aggregators;
}

}  // namespace

bool TreeStore::IsTree(const std::string& root) {
  return !AggregatorsIn(root).empty();
}

absl::StatusOr<std::unique_ptr<StripeSource>> TreeStore::Open(const std::string& root) {
  std::map<uint32_t, std::unique_ptr<StripeSource>> below;
  for (const uint32_t aggregator : AggregatorsIn(root)) {
    auto store = Open(absl::StrCat(root, "/", MidLevelFolderName(aggregator)));
    if (!store.ok()) return store.status();
    below[aggregator] = *std::move(store);
  }
  if (!below.empty()) return std::unique_ptr<StripeSource>(new TreeStore(std::move(below)));
  auto store = StripeStore::Open(root);
  if (!store.ok()) return store.status();
  return std::make_unique<StripeStore>(*std::move(store));
}

absl::StatusOr<std::vector<uint32_t>> TreeStore::Workers() const {
  std::vector<uint32_t> workers;
  for (const auto& [worker, source] : below_) workers.push_back(worker);
  return workers;
}

absl::StatusOr<std::vector<std::string>> TreeStore::Files(uint32_t worker) const {
  const StripeSource& source = *below_.at(worker);
  const auto lower_workers = source.Workers();
  if (!lower_workers.ok()) return lower_workers.status();
  std::set<std::string> files;
  for (const uint32_t lower_worker : *lower_workers) {
    const auto names = source.Files(lower_worker);
    if (!names.ok()) return names.status();
    for (const std::string& name : *names) {
      const auto lower = ParseLowerName(name);
      if (lower.has_value() && lower->worker == worker) files.insert(lower->file);
    }
  }
  return std::vector<std::string>(files.begin(), files.end());
}

std::string TreeStore::FolderName(uint32_t worker) const {
  return MidLevelFolderName(worker);
}

absl::StatusOr<TreeStore::LowerFile> TreeStore::Find(uint32_t worker, const absl::StatusOr<std::string>& name) const {
  if (!name.ok()) return name.status();
  if (const auto found = found_.find(*name); found != found_.end()) return found->second;
  const auto source = below_.find(worker);
  if (source == below_.end()) return absl::NotFoundError(absl::StrCat("no worker ", worker, " here"));
  auto layout = FindLayout(*source->second, *name);
  if (!layout.ok()) return layout.status();
  return found_[*name] = {source->second.get(), *name, std::make_shared<const StripeLayout>(*std::move(layout))};
}

absl::Status TreeStore::ReadLower(const LowerFile& file, uint64_t offset, uint32_t length, std::string* out) {
  const StripeLayout& layout = *file.layout;
  out->clear();
  std::string part;
  while (out->size() < length) {
    const uint64_t at = offset + out->size();
    const uint64_t sru = at / layout.SruBytes();
    const uint64_t in_sru = at - layout.SruOffset(sru);
    const uint64_t bytes =
        std::min<uint64_t>({layout.SruLength(sru) - in_sru, length - out->size(), uint64_t{kMaxReadBytes}});
    absl::Status read = file.source->Read(layout.Worker(sru, 0), file.name, 0, layout.OffsetInStripe(sru) + in_sru,
                                          static_cast<uint32_t>(bytes), &part);
    if (!read.ok()) return read;
    *out += part;
  }
  return absl::OkStatus();
}

absl::Status TreeStore::Read(uint32_t worker, std::string_view file, uint32_t replica, uint64_t offset, uint32_t length,
                             std::string* out) const {
  const auto lower = Find(worker, LowerStripeName(file, worker, replica));
  if (!lower.ok()) return lower.status();
  const uint64_t bytes = lower->layout->FileBytes();
  if (offset > bytes || length > bytes - offset) {
    return absl::OutOfRangeError(absl::StrCat("stripe ", replica, " of worker ", worker, " has ", bytes,
                                              " bytes; wanted ", length, " from ", offset));
  }
  return ReadLower(*lower, offset, length, out);
}

absl::StatusOr<uint64_t> TreeStore::StripeBytes(uint32_t worker, std::string_view file, uint32_t replica) const {
  const auto lower = Find(worker, LowerStripeName(file, worker, replica));
  if (!lower.ok()) return lower.status();
  return lower->layout->FileBytes();
}

absl::StatusOr<uint64_t> TreeStore::ReadManifest(uint32_t worker, std::string_view file, uint64_t offset,
                                                 uint32_t length, std::string* out) const {
  const auto lower = Find(worker, LowerManifestName(file, worker));
  if (!lower.ok()) return lower.status();
  const uint64_t bytes = lower->layout->FileBytes();
  if (offset > bytes) {
    return absl::OutOfRangeError(absl::StrCat("the manifest has ", bytes, " bytes; wanted some from ", offset));
  }
  absl::Status read = ReadLower(*lower, offset, static_cast<uint32_t>(std::min<uint64_t>(length, bytes - offset)), out);
  if (!read.ok()) return read;
  return bytes;
}

}  // namespace sluice
