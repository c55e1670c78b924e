#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "lib/storage/stripe/stripe_layout.h"

namespace sluice {

// The stripe layouts of recently read files, bounded by bytes. The least recently used layouts are dropped first. The
// last layout stays, regardless of its size. There is one for each BlockReader. Not thread-safe.
class LayoutCache {
 public:
  explicit LayoutCache(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // Returns null if the cache does not have the file. Counts as a use.
  std::shared_ptr<const StripeLayout> Find(const std::string& file);
  void Keep(const std::string& file, std::shared_ptr<const StripeLayout> layout);
  void Forget(const std::string& file);

  uint64_t used_bytes() const { return used_bytes_; }

 private:
  struct Entry {
    std::string file;
    std::shared_ptr<const StripeLayout> layout;
    uint64_t bytes = 0;
  };
  using Entries = std::list<Entry>;

  void Drop(Entries::iterator entry);

  const uint64_t max_bytes_;
  uint64_t used_bytes_ = 0;
  Entries by_use_;  // the last used one first
  absl::flat_hash_map<std::string, Entries::iterator> by_file_;
};

}  // namespace sluice
