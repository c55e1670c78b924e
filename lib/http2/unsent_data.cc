#include "lib/http2/unsent_data.h"

#include <utility>

namespace sluice {

void UnsentData::Append(std::string bytes) {
  if (empty()) {
    bytes_ = std::move(bytes);
    sent_bytes_ = 0;
    return;
  }
  // Delete sent bytes once they are half of all bytes, so that a byte is moved once on average.
  if (sent_bytes_ >= bytes_.size() - sent_bytes_) {
    bytes_.erase(0, sent_bytes_);
    sent_bytes_ = 0;
  }
  bytes_.append(bytes);
}

void UnsentData::Remove(size_t bytes) {
  sent_bytes_ += bytes;
  if (empty()) {
    std::string().swap(bytes_);  // frees its memory, which an assignment need not: most streams send once
    sent_bytes_ = 0;
  }
}

}  // namespace sluice
