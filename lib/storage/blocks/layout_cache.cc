#include "lib/storage/blocks/layout_cache.h"

#include <iterator>
#include <utility>

namespace sluice {
namespace {

constexpr uint64_t kChecksumBytes = 4;  // of one SRU
constexpr uint64_t kEntryBytes = 512;   // of a layout without name and checksums, roughly

}  // namespace

std::shared_ptr<const StripeLayout> LayoutCache::Find(const std::string& file) {
  const auto found = by_file_.find(file);
  if (found == by_file_.end()) return nullptr;
  by_use_.splice(by_use_.begin(), by_use_, found->second);
  return found->second->layout;
}

void LayoutCache::Keep(const std::string& file, std::shared_ptr<const StripeLayout> layout) {
  Forget(file);
  const uint64_t bytes = kEntryBytes + 2 * file.size() + kChecksumBytes * layout->SruCount();
  by_use_.push_front({.file = file, .layout = std::move(layout), .bytes = bytes});
  by_file_[file] = by_use_.begin();
  used_bytes_ += bytes;
  while (used_bytes_ > max_bytes_ && by_use_.size() > 1) Drop(std::prev(by_use_.end()));
}

void LayoutCache::Forget(const std::string& file) {
  if (const auto found = by_file_.find(file); found != by_file_.end()) Drop(found->second);
}

void LayoutCache::Drop(Entries::iterator entry) {
  used_bytes_ -= entry->bytes;
  by_file_.erase(entry->file);
  by_use_.erase(entry);
}

}  // namespace sluice
