#pragma once

#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace sluice {

// The request bytes that calls hold while they wait to be sent, of all workers and of each. There is one for each
// LinkLoop, used on the link's thread only.
class QueuedBytes {
 public:
  // The bytes of one call, which count until Clear or its destructor. QueuedBytes must outlive it.
  class Entry {
   public:
    Entry() = default;
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry() { Clear(); }

    void Count(QueuedBytes& in, uint32_t worker, int64_t bytes) {
      if (in_ != nullptr || bytes == 0) return;
      in_ = &in;
      worker_ = worker;
      bytes_ = bytes;
      in.Add(worker, bytes);
    }
    void Clear() {
      if (in_ != nullptr) std::exchange(in_, nullptr)->Add(worker_, -bytes_);
    }
    int64_t bytes() const { return in_ == nullptr ? 0 : bytes_; }

   private:
    QueuedBytes* in_ = nullptr;
    uint32_t worker_ = 0;
    int64_t bytes_ = 0;
  };

  int64_t all() const { return all_; }
  int64_t Of(uint32_t worker) const {
    const auto found = by_worker_.find(worker);
    return found == by_worker_.end() ? 0 : found->second;
  }

 private:
  void Add(uint32_t worker, int64_t bytes) {
    all_ += bytes;
    const auto found = by_worker_.try_emplace(worker).first;
    found->second += bytes;
    if (found->second == 0) by_worker_.erase(found);
  }

  int64_t all_ = 0;
  absl::flat_hash_map<uint32_t, int64_t> by_worker_;  // without zeros
};

}  // namespace sluice
